"""Hooks of schemathesis: every request is signed with the account key."""

import base64
import email.utils
import hashlib
import hmac
import os
import urllib.parse

import schemathesis

KEY = base64.b64decode(os.environ["ORRERY_KEY"])


def authorization(method, path, date):
    segments = [urllib.parse.unquote(segment) for segment in path.split("/") if segment]
    if len(segments) % 2 == 0:
        kind, link = segments[-2], segments
    else:
        kind, link = segments[-1], segments[:-1]
    text = f"{method.lower()}\n{kind.lower()}\n{'/'.join(link)}\n{date.lower()}\n\n"
    signature = base64.b64encode(hmac.new(KEY, text.encode(), hashlib.sha256).digest()).decode()
    return urllib.parse.quote(f"type=master&ver=1.0&sig={signature}", safe="")


@schemathesis.auth()
class AccountKey:
    def get(self, case, context):
        date = email.utils.formatdate(usegmt=True)
        return {"x-ms-date": date, "authorization": authorization(case.method, case.formatted_path, date)}

    def set(self, case, data, context):
        case.headers = {**(case.headers or {}), **data}
