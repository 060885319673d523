"""Tokens that are not quite right, of every kind, get one and the same refusal."""

import base64
import hmac
import json
import time
from typing import Any

import jwt as pyjwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.requests import HTTPConnection

from playhead.errors import Unauthenticated
from playhead.gateway.jwt import MAX_TOKEN, jwt
from tests.gateway.stub import scope_of

SECRET = "a-secret-of-more-than-sixty-four-bytes!" * 2
PRIVATE = ec.generate_private_key(ec.SECP256R1())
OTHER = ec.generate_private_key(ec.SECP256R1())
PEM = (
    PRIVATE.public_key()
    .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    .decode()
)
CLAIMS = {"sub": "ann", "aud": "playhead", "iss": "https://issuer.test", "tenant": "acme"}
CHECK: dict[str, Any] = {"audience": "playhead", "issuer": "https://issuer.test"}


def claims(**changes):
    full = {**CLAIMS, "exp": time.time() + 60, **changes}
    return {name: value for name, value in full.items() if value is not None}


def signed(*, key=PRIVATE, algorithm="ES256", headers=None, **changes):
    return pyjwt.encode(claims(**changes), key, algorithm, headers=headers)


def enter(authenticate, token, headers=None):
    headers = headers or [("authorization", f"Bearer {token}")]
    return authenticate(HTTPConnection(scope_of("GET", "/runs", headers)))


def by_key():
    return jwt(PEM, algorithms=["ES256"], **CHECK)


def part(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def forged(header, mac="e30"):
    return f"{part(header)}.{part(claims())}.{mac}"


def test_a_good_token_names_subject_tenant_and_end():
    principal = enter(by_key(), signed())
    assert (principal.subject, principal.tenant) == ("ann", "acme")
    assert principal.expires_at == pytest.approx(time.time() + 60, abs=5)
    assert enter(by_key(), signed(aud=["x", "playhead"])).subject == "ann"
    assert enter(jwt(SECRET, algorithms=["HS256"], **CHECK), signed(key=SECRET, algorithm="HS256")).tenant == "acme"
    by_subject = jwt(PEM, algorithms=["ES256"], tenant_claim="sub", **CHECK)
    assert enter(by_subject, signed()).tenant == "ann"


def bad_tokens():
    now = time.time()
    signing_input = forged({"alg": "HS256", "typ": "JWT"}).rpartition(".")[0]
    mac = hmac.digest(PEM.encode(), signing_input.encode(), "sha256")
    with_the_public_key = f"{signing_input}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    return {
        "empty": "",
        "no token": "x",
        "three empty parts": "..",
        "alg none": pyjwt.encode(claims(), "", "none"),
        "alg None": forged({"alg": "None", "typ": "JWT"}, ""),
        "no alg": forged({"typ": "JWT"}),
        "alg list": forged({"alg": ["ES256"], "typ": "JWT"}),
        "swapped to a shared secret": signed(key=SECRET, algorithm="HS256"),
        "signed with the public key": with_the_public_key,
        "other algorithm": signed(key=SECRET, algorithm="HS512"),
        "other key": signed(key=OTHER),
        "key in the token": signed(key=OTHER, headers={"jwk": {"kty": "EC", "crv": "P-256"}}),
        "key by address": signed(key=OTHER, headers={"jku": "https://evil.test/k", "x5u": "https://evil.test/c"}),
        "expired": signed(exp=now - 1),
        "no exp": signed(exp=None),
        "exp no number": signed(exp="soon"),
        "not yet": signed(nbf=now + 60),
        "issued later": signed(iat=now + 600),
        "other audience": signed(aud="else"),
        "no audience": signed(aud=None),
        "other issuer": signed(iss="https://issuer.test.evil"),
        "no issuer": signed(iss=None),
        "no subject": signed(sub=None),
        "empty subject": signed(sub=""),
        "subject with a line break": signed(sub="a\nb"),
        "long subject": signed(sub="x" * 256),
        "no tenant": signed(tenant=None),
        "every tenant": signed(tenant="*"),
        "empty tenant": signed(tenant=""),
        "tenant no text": signed(tenant=["acme"]),
        "tenant with a slash": signed(tenant="a/b"),
        "no type": signed(headers={"typ": None}),
        "other type": signed(headers={"typ": "logout+jwt"}),
        "critical extension": signed(headers={"crit": ["x"], "x": 1}),
        "changed claims": ".".join([signed().split(".")[0], part(claims(tenant="b")), signed().split(".")[2]]),
        "cut signature": signed()[:-4],
        "too long": signed(sub="ann", pad="x" * MAX_TOKEN),
        "not ASCII": "é" * 10,
        "deep": f"{part({'alg': 'ES256', 'typ': 'JWT'})}.{base64.urlsafe_b64encode(b'[' * 5000).decode()}.e30",
    }


BAD = bad_tokens()


@pytest.mark.parametrize("name", BAD)
def test_every_bad_token_is_refused_alike(name):
    with pytest.raises(Unauthenticated) as caught:
        enter(by_key(), BAD[name])
    assert str(caught.value) == "The request has no bearer token that this server accepts."
    assert caught.value.details == {}


def test_no_token_in_another_place_is_looked_at():
    token = signed()
    for headers in (
        [("x", "y")],
        [("authorization", token)],
        [("authorization", f"Basic {token}")],
        [("authorization", f"Bearer {token}"), ("authorization", f"Bearer {token}")],
        [("cookie", f"token={token}")],
    ):
        with pytest.raises(Unauthenticated):
            enter(by_key(), "", headers)
    with pytest.raises(Unauthenticated):
        by_key()(HTTPConnection(scope_of("GET", f"/runs?access_token={token}&token={token}")))


def test_a_key_is_chosen_from_ours_by_name():
    authenticate = jwt({"one": PEM}, algorithms=["ES256"], **CHECK)
    assert enter(authenticate, signed(headers={"kid": "one"})).subject == "ann"
    for headers in ({}, {"kid": "two"}, {"kid": ""}):
        with pytest.raises(Unauthenticated):
            enter(authenticate, signed(headers=headers))


@pytest.mark.parametrize(
    "wrong",
    [
        {"algorithms": []},
        {"algorithms": ["none"]},
        {"algorithms": ["ES256", "None"]},
        {"algorithms": ["ES256", "HS256"]},
        {"audience": ""},
        {"audience": []},
        {"issuer": ""},
    ],
)
def test_a_rule_with_a_hole_is_refused_at_the_start(wrong):
    with pytest.raises(ValueError):
        jwt(PEM, **{"algorithms": ["ES256"], **CHECK, **wrong})


@pytest.mark.parametrize("key", ["", {}, b"short", {"a": "x" * 31}])
def test_a_shared_secret_has_a_length(key):
    with pytest.raises(ValueError):
        jwt(key, algorithms=["HS256"], **CHECK)
