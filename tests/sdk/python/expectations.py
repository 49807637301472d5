"""Checks that many tests share."""

import contextlib

import pytest
from azure.cosmos import exceptions


@contextlib.contextmanager
def fails(status, sub_status=None, message=None):
    """The block raises the SDK's error with this status, and the error carries what every error carries."""
    with pytest.raises(exceptions.CosmosHttpResponseError) as caught:
        yield caught
    error = caught.value
    assert error.status_code == status, error
    if sub_status is not None:
        assert (error.sub_status or 0) == sub_status, error
    if message is not None:
        assert message in str(error), error
    assert error.headers.get("x-ms-activity-id"), "an error names its activity"
    assert float(error.headers["x-ms-request-charge"]) >= 0, "an error states its charge"


def without_system_properties(item):
    system = {"_rid", "_self", "_etag", "_attachments", "_ts"}
    return {name: value for name, value in item.items() if name not in system}
