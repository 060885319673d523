"""Bearer tokens: JSON Web Tokens of one issuer, for this server, checked by rules that no token can choose."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import HTTPConnection

from playhead.core.ids import is_tenant
from playhead.errors import Unauthenticated
from playhead.gateway.auth import Authenticator, Principal

if TYPE_CHECKING:
    from jwt.algorithms import AllowedPublicKeys

    Key = str | bytes | AllowedPublicKeys

MAX_TOKEN = 8192  # bytes; longer ones are not looked at
MAX_SUBJECT = 255
MIN_SECRET = 32  # bytes
_SYMMETRIC = "HS"
_REFUSED = "The request has no bearer token that this server accepts."


def jwt(
    key: Key | Mapping[str, Key],
    *,
    algorithms: Sequence[str],
    audience: str | Collection[str],
    issuer: str,
    tenant_claim: str = "tenant",
    types: Collection[str] = ("jwt", "at+jwt"),
    leeway: float = 0.0,
) -> Authenticator:
    """Accept `Authorization: Bearer` with a token signed by this key; a mapping is by the token's `kid`.

    The tenant is the claim of that name, the subject is `sub`, and grants are looked at again when `exp` is reached.

    Guarantees: the algorithm is one of `algorithms`, which are all of one kind, whatever the token says of itself; no
    key comes from the token; `exp`, `aud`, `iss` and `sub` are there and right; so is `typ`. A token in the address
    is not looked at. Every refusal reads the same.

    Raises:
        ValueError: algorithms that are none or of two kinds, an empty audience or issuer, an empty or short key.
        RuntimeError: the extra `jwt` is not installed.
    """
    try:
        import jwt as pyjwt
    except ImportError:
        raise RuntimeError("Bearer tokens need the extra: pip install 'playhead[jwt]'") from None
    fixed = list(algorithms)
    kinds = {name.startswith(_SYMMETRIC) for name in fixed}
    if len(kinds) != 1 or any(name.lower() == "none" for name in fixed):
        raise ValueError("algorithms are one or more signing algorithms of one kind: shared secret, or key pair")
    audiences = [audience] if isinstance(audience, str) else list(audience)
    if not key or not issuer or not audiences or not all(audiences):
        raise ValueError("key, audience and issuer cannot be empty")
    secrets = [one for one in (key.values() if isinstance(key, Mapping) else [key]) if isinstance(one, str | bytes)]
    if kinds == {True} and any(len(secret) < MIN_SECRET for secret in secrets):
        raise ValueError(f"a shared secret has at least {MIN_SECRET} bytes")
    allowed_types = {name.lower() for name in types}
    decoder = pyjwt.PyJWT()

    def key_for(header: Mapping[str, Any]) -> Any:
        if not isinstance(key, Mapping):
            return key
        named = header.get("kid")
        if not isinstance(named, str) or named not in key:
            raise Unauthenticated(_REFUSED)
        return key[named]

    def authenticate(request: HTTPConnection) -> Principal:
        token = bearer(request)
        try:
            header = pyjwt.get_unverified_header(token)
            kind = header.get("typ")
            if not isinstance(kind, str) or kind.lower() not in allowed_types:
                raise Unauthenticated(_REFUSED)
            claims = decoder.decode(
                token,
                key_for(header),
                algorithms=fixed,
                audience=audiences,
                issuer=issuer,
                leeway=leeway,
                options={"require": ["exp", "aud", "iss", "sub"]},
            )
        except Unauthenticated:
            raise
        except (pyjwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            # Whatever a hostile token does to the decoder, it is one answer, and the token is in none of it.
            raise Unauthenticated(_REFUSED) from None
        return _principal(claims, tenant_claim)

    return authenticate


def bearer(request: HTTPConnection) -> str:
    """The one bearer token of the request. Raises Unauthenticated."""
    values = request.headers.getlist("authorization")
    scheme, _, token = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not 0 < len(token) <= MAX_TOKEN or not token.isascii():
        raise Unauthenticated(_REFUSED)
    return token.strip(" ")


def _principal(claims: Mapping[str, Any], tenant_claim: str) -> Principal:
    subject, tenant, expires = claims["sub"], claims.get(tenant_claim), claims["exp"]
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT or not subject.isprintable():
        raise Unauthenticated(_REFUSED)
    if not isinstance(tenant, str) or not is_tenant(tenant):
        raise Unauthenticated(_REFUSED)
    return Principal(subject, tenant, float(expires))
