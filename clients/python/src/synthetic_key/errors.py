"""Errors of keys, with codes that are the same in every language."""


class KeyError_(ValueError):  # noqa: N801 - exported as SyntheticKeyError; KeyError is Python's own
    """A key that cannot be built, or an item whose existing key does not match.

    ``code`` is one of missing, null, nonScalar, format, ambiguous, tooLong, version, undetermined, tooMany,
    contradiction and place.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
