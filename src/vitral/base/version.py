"""The version, in one place: the package's metadata and every written record read it from here."""

__version__ = "0.3.0"
