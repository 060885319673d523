"""What a person may choose before a licence review starts. Its JSON schema makes the form."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator


class LicenceReviewInput(BaseModel):
    """Every field has a default, so `{}` is a valid input."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="Licence review")

    python: str | None = Field(
        default=None,
        title="Python interpreter",
        description="Path of the interpreter whose distributions are reviewed. Empty: the one that runs this agent.",
        max_length=1024,
    )
    policy: str | None = Field(
        default=None,
        title="Policy file",
        description="Path of a TOML policy file. Empty: the policy that comes with playhead.",
        max_length=1024,
    )
    limit: int | None = Field(
        default=None,
        title="At most",
        description="Review only this many distributions, in alphabetical order. Empty: all.",
        ge=1,
        le=100_000,
    )
    pace: float = Field(
        default=0.05,
        title="Seconds per distribution",
        description="Wait this long after each distribution, so that the review can be watched. 0: as fast as it goes.",
        ge=0,
        le=60,
        allow_inf_nan=False,
    )
    require_approval: bool = Field(
        default=True,
        title="Ask for approval",
        description="Ask a person to approve each group of exceptions. Off: only report them.",
    )
    deadline_minutes: int = Field(
        default=60,
        title="Minutes to approve",
        description="How long an approval may take before it expires.",
        ge=1,
        le=10_080,
    )

    @field_validator("python", "policy", "limit", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        # A form sends an empty text for a field that was left alone.
        return None if isinstance(value, str) and not value.strip() else value
