"""Settings: `sage.toml`, then environment variables (`SAGE_…`), then the command line."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from kg.literature.access import Access
from kg.types import MAX_HOPS, PATHS
from sage.core import egress, log
from sage.core.errors import InputError
from sage.core.llm.client import Endpoint, Structured
from sage.core.llm.messages import ModelChoice
from sage.core.models import Strict

if TYPE_CHECKING:
    from kg.paths.find import PathOptions

MISTYPED = re.compile(r"^[A-Za-z][\w+.-]*:(?!//)|^(?![A-Za-z][\w+.-]*://).*:[^/@]*@")
"""Text that looks like an address but lacks `://` after its scheme: `postgres//ann:secret@db`."""


class Models(Strict):
    """Model for each role (defaults: SAGE, Table 5).

    Each has `name`; `price_in` and `price_out`, in USD per million tokens, needed for a
    budget; `temperature`; `max_tokens`, the maximum reply length; `reasoning_effort`, as
    named by the provider; and `fallback`, a model with the same fields, used if this model is
    unavailable.
    """

    nano: ModelChoice = ModelChoice(name="gpt-5-nano")
    mini: ModelChoice = ModelChoice(name="gpt-5-mini")
    high: ModelChoice = ModelChoice(name="gpt-5")


class Weights(Strict):
    """Weights of the path scores, which are larger for novelty and surprise (SAGE, B.1.5)."""

    logic: float = Field(default=0.2, ge=0)
    relevance: float = Field(default=0.2, ge=0)
    novelty: float = Field(default=0.3, ge=0)
    surprise: float = Field(default=0.3, ge=0)


class LedgerSettings(Strict):
    """Location of the ledger, which records tests by patient: a file, or `postgresql://…`."""

    url: SecretStr | None = None

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        """Accept a bare path or URL as the value of `SAGE_LEDGER`."""
        return {"url": value} if isinstance(value, str) else value

    @field_validator("url")
    @classmethod
    def _no_mistyped_address(cls, value: SecretStr | None) -> SecretStr | None:
        """Reject a mistyped address as a path, because its password would appear in a file name."""
        if value is not None and MISTYPED.search(value.get_secret_value()):
            raise ValueError("must be a path or postgresql://USER:PASSWORD@HOST/DATABASE")
        return value

    @property
    def place(self) -> str:
        """The current path or URL, including any password; by default, the user's own file."""
        if self.url is not None and self.url.get_secret_value():
            return self.url.get_secret_value()
        base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
        return str(Path(base).expanduser() / "sage" / "ledger.sqlite")

    @property
    def shown(self) -> str:
        """The current path or URL, in a form that is safe to print."""
        parts = urlsplit(self.place)
        if not parts.scheme.startswith("postgres"):
            return self.place
        return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


class RunOptions(Strict):
    """Defaults for every run, in the `[run]` table; options of `sage run` override them."""

    cohort: str = Field(default="demo", description="cohort folder or built-in name")
    cohort_root: Path | None = Field(
        default=None, description="folder of the cohort's data files, if not that of cohort.toml"
    )
    features: tuple[Path, ...] = Field(
        default=(), description="tables of variables computed on the slides"
    )
    kg: Path | None = Field(default=None, description="knowledge graph; default: the bundled graph")
    corpus: Path | None = Field(
        default=None, description="literature notes for the debate; default: the bundled folder"
    )
    replicate: str | None = Field(default=None, description="second cohort for external validation")
    confirm: float | str | None = Field(
        default=None,
        description="share of patients (0.2 to 0.8) that confirm claims, or a second cohort",
    )
    hypotheses: int = Field(default=1, ge=1, le=10, description="number of hypotheses to test")
    auto_approve: bool = Field(default=False, description="skip the human review")
    seed: int = Field(default=0, description="random seed")
    budget_usd: float | None = Field(
        default=None, ge=0, description="maximum cost of the model, in USD"
    )
    as_of: int | None = Field(default=None, description="year in which novelty is judged")
    measure: bool = Field(
        default=False, description="first compute the standard suite of measurements on the maps"
    )

    @field_validator("confirm", mode="before")
    @classmethod
    def _parse_share(cls, value: Any) -> Any:
        """Parse a number such as `0.5` as a share, and anything else as a cohort."""
        try:
            return float(value)
        except (TypeError, ValueError):
            return value

    @model_validator(mode="after")
    def _confirm_once(self) -> RunOptions:
        if self.split is not None and not 0.2 <= self.split <= 0.8:
            raise ValueError("confirm must be a share between 0.2 and 0.8, or a cohort")
        if self.confirms and self.replicate:
            raise ValueError(
                "--replicate and --confirm COHORT cannot be combined: a claim has only one second "
                "cohort"
            )
        return self

    @property
    def split(self) -> float | None:
        """Share of patients held back to confirm claims."""
        return self.confirm if isinstance(self.confirm, float) else None

    @property
    def confirms(self) -> bool:
        """True if a second cohort must confirm the claims."""
        return isinstance(self.confirm, str)

    @property
    def second_cohort(self) -> str | None:
        """The cohort in which claims are repeated."""
        return self.confirm if isinstance(self.confirm, str) else self.replicate


class Settings(BaseSettings):
    """SAGE settings; `sage admin config` prints the current values and their sources.

    Variables of other programs (`OPENAI_BASE_URL`, `HTTPS_PROXY`) count only with
    `allow_foreign_env`, and only if none of SAGE's own settings names an endpoint or a key.

    For models, `base_url` is any OpenAI-compatible server or, with `api_version`, an Azure
    resource whose deployments are named like the models. `timeout_s` is the maximum wait for
    a reply's first token, `stall_s` the longest silence within the reply. `retries` is the
    number of times that a failed request is repeated. `concurrency` limits simultaneous
    calls, and `requests_per_minute` limits the calls started per minute. `structured` is the
    way a schema is requested; if it is not supported, the next simpler way is used. `repairs`
    is the maximum number of times that a rejected reply is sent back to the model. `vision`
    sends figures to models with vision.

    `drafts` is the number of candidates that the scientist drafts; the best are debated and
    tested. With `tournament`, they are compared in pairs.
    """

    model_config = SettingsConfigDict(
        env_prefix="SAGE_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
    )

    reasoner: Literal["auto", "rules", "chat"] = "auto"
    allow_foreign_env: bool = False
    base_url: egress.Address | None = None
    api_key: SecretStr | None = None
    api_version: str | None = None
    models: Models = Models()
    structured: Structured = "json_schema"
    vision: bool = False
    timeout_s: float = Field(default=180, gt=0)
    stall_s: float = Field(default=60, gt=0)
    retries: int = Field(default=4, ge=0)
    concurrency: int = Field(default=8, ge=1)
    requests_per_minute: float | None = Field(default=None, gt=0)
    repairs: int = Field(default=2, ge=0)

    runs_dir: Path = Path("runs")
    cache_dir: Path = Path("~/.cache/sage")
    checkpoint_url: SecretStr | None = None
    ledger: Annotated[LedgerSettings, NoDecode] = LedgerSettings()

    run: RunOptions = RunOptions()
    paths: int = Field(default=PATHS, ge=1, le=50)
    max_hops: int = Field(default=MAX_HOPS, ge=1, le=8)
    weights: Weights = Weights()
    embedding_model: str = "default"

    drafts: int = Field(default=12, ge=1, le=40)
    tournament: bool = False
    novelty_threshold: float = Field(default=5.0, ge=1, le=10)
    revisions: int = Field(default=2, ge=0)
    coding_rounds: int = Field(default=3, ge=1)
    reviewers: int = Field(default=1, ge=1, le=5)
    min_count: int = Field(default=5, ge=1, le=50)
    literature: Literal["local", "online"] = "local"
    contact_email: str | None = None
    services: Access = Access()
    sandbox: Literal["auto", "docker", "bubblewrap", "subprocess"] = "auto"
    sandbox_runtime: str | None = None
    user_tools: Path | None = None

    def path_options(self, **changes: object) -> PathOptions:
        """Build the options shared by all path searches: those of runs, tools and commands."""
        from kg.paths.find import PathOptions

        given = {"k": self.paths, "max_hops": self.max_hops, **self.weights.model_dump()}
        return PathOptions.model_validate(given | changes)

    @field_validator("checkpoint_url")
    @classmethod
    def _is_postgres(cls, value: SecretStr | None) -> SecretStr | None:
        """Reject other addresses; a driver's error would quote them with the password."""
        if value is None or not value.get_secret_value():
            return None
        if not value.get_secret_value().startswith(POSTGRES):
            raise ValueError("expected postgresql://USER:PASSWORD@HOST/DATABASE")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Rank command line over environment over file; ignore `.env` files and secrets."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, config_file())

    @model_validator(mode="after")
    def _azure_has_an_address(self) -> Settings:
        if self.api_version and not self.base_url:
            raise ValueError("api_version (Azure) requires base_url, the URL of the Azure resource")
        return self

    @property
    def endpoint(self) -> Endpoint:
        """The model server's address and the settings for requests to it."""
        return Endpoint(**{name: getattr(self, name) for name in Endpoint.model_fields})

    @property
    def effective_reasoner(self) -> Literal["rules", "chat"]:
        """`chat` if requested or if an endpoint is configured; a key is not sufficient."""
        if self.reasoner == "auto":
            return "chat" if self.base_url else "rules"
        return self.reasoner

    def require_model(self) -> None:
        """Raise `InputError` if the address of the models would have to be guessed."""
        if not self.base_url and self.api_key is None:
            raise InputError(
                "reasoner chat needs a model; set SAGE_BASE_URL to its address, SAGE_API_KEY to "
                "its key, or both. Variables for other programs, such as OPENAI_API_KEY, "
                "are used only with allow_foreign_env = true"
            )

    @property
    def destination(self) -> str:
        """Description of where text is sent: the models' address and the setting that chose it."""
        if self.effective_reasoner == "rules":
            return "rules: text goes to no model"
        chosen = origin("base_url") if self.base_url else f"no base_url; {origin('reasoner')}"
        return f"text goes to {self.endpoint.address} (set by {chosen})"


POSTGRES = ("postgresql://", "postgres://")
USUAL = {
    "base_url": "OPENAI_BASE_URL",
    "api_key": "OPENAI_API_KEY",
}
"""Foreign variables, used with `allow_foreign_env` if no setting names an endpoint."""


def origin(name: str) -> str:
    """Name the source of a setting: a variable, the file, or else the command line."""
    file = config_file()
    if f"SAGE_{name.upper()}" in os.environ:
        return f"SAGE_{name.upper()}"
    if file.is_file() and name in tomllib.loads(file.read_text(encoding="utf-8")):
        return str(file)
    return (egress.foreign(USUAL.get(name, "")) and USUAL[name]) or "the command line"


def config_file() -> Path:
    """Return `$SAGE_CONFIG`, else `./sage.toml`, else the file in the user's config folder."""
    named = os.environ.get("SAGE_CONFIG")
    if named:
        if not Path(named).is_file():
            raise InputError(f"SAGE_CONFIG: file {named} not found")
        return Path(named)
    local = Path("sage.toml")
    base = Path(os.environ.get("XDG_CONFIG_HOME", "~/.config")).expanduser()
    return local if local.is_file() else base / "sage" / "sage.toml"


def load(**overrides: Any) -> Settings:
    """Read the settings, ignoring `overrides` that are None.

    Raises
    ------
    InputError
        If a value is invalid; the message names the field and the sources of values.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        settings = Settings(**given)
        egress.allow_foreign(settings.allow_foreign_env)
        if not (settings.base_url or settings.api_key):
            usual = {name: egress.foreign(variable) for name, variable in USUAL.items()}
            settings = Settings(**given | {name: value for name, value in usual.items() if value})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        variable = f"SAGE_{field.upper().replace('.', '__')}".replace("LEDGER__URL", "LEDGER")
        said, place = first["msg"].removeprefix("Value error, "), "set in"
        if first["type"] == "extra_forbidden":
            name = str(first["loc"][-1])
            said, place = "there is no such setting", "found in"
            if name in Settings.model_fields:
                said += f"; {name} belongs at the top of the file"
        raise InputError(
            f"setting {field}: {said} ({place} {config_file()}, as {variable}"
            " or on the command line; `sage admin config` shows all)"
        ) from None
    except ValueError as error:
        raise InputError(f"{config_file()}: {error}") from None
    for secret in (settings.api_key, settings.checkpoint_url, *settings.services.keys.values()):
        if secret:
            log.hide(secret.get_secret_value())
    cache = settings.cache_dir
    if (base := os.environ.get("XDG_CACHE_HOME")) and "cache_dir" not in settings.model_fields_set:
        cache = Path(base) / "sage"
    return settings.model_copy(
        update={
            "runs_dir": settings.runs_dir.expanduser(),
            "cache_dir": cache.expanduser(),
        }
    )
