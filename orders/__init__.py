"""The order service of a pet store. `docs/architecture.md` says which part does what."""

VERSION = "1.0.0"
