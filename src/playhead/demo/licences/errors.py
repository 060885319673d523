"""What can go wrong while licences are read and judged. No message and no detail holds a local path."""

from __future__ import annotations

from playhead.errors import PlayheadError


class LicencesError(PlayheadError):
    """The licence review could not be done."""

    code = "licences_error"


class PythonUnusable(LicencesError):
    """This is not a Python interpreter that can list its distributions."""

    code = "python_unusable"


class PolicyUnreadable(LicencesError):
    """The policy file cannot be read."""

    code = "policy_unreadable"


class PolicyInvalid(LicencesError):
    """The policy file does not say what a policy says."""

    code = "policy_invalid"


class ExpressionInvalid(LicencesError):
    """This is not an SPDX licence expression."""

    code = "licence_expression_invalid"
