"""Format numbers and dates, identically in every implementation."""

import math
import re

from .errors import KeyError_

EXACT = 9_007_199_254_740_991.0
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DATE = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:T(\d\d):(\d\d)(?::(\d\d)(?:\.\d+)?)?(?:Z|([+-])(\d\d):(\d\d))?)?",
    re.ASCII,
)


def _format_error(path: str, message: str) -> KeyError_:
    return KeyError_("format", f"the property {path} does not fit its format: {message}")


def number_text(number: float, path: str) -> str:
    """A number as ECMAScript prints it: the shortest text that parses back to the same double."""
    if not math.isfinite(number):
        raise _format_error(path, "the number is not finite")
    if number == 0:
        return "0"
    sign = "-" if number < 0 else ""
    # repr yields the shortest digits; only the position of the decimal point differs.
    mantissa, _, exponent_text = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    point = len(whole) + int(exponent_text or 0)
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    digits = stripped.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    exponent = point - 1
    dot = "." if count > 1 else ""
    return f"{sign}{digits[0]}{dot}{digits[1:]}e{'-' if exponent < 0 else '+'}{abs(exponent)}"


def number_formatted(number: float, number_format: dict, path: str) -> str:
    """A number with fixed decimals (rounded half to even on the exact value), a width or a bucket."""
    if not math.isfinite(number) or abs(number) > EXACT:
        raise _format_error(path, "the number is beyond the exact range of doubles")
    bucket, decimals, width = number_format["bucket"], number_format["decimals"], number_format["width"]
    if bucket is not None:
        number = float(math.floor(number / float(bucket))) * float(bucket)
    if decimals is not None:
        text = f"{abs(number):.{decimals}f}"
    elif width > 0 and number != math.floor(number):
        raise _format_error(path, "expected a whole number; set decimals for fractions")
    else:
        text = number_text(abs(number), path)
    whole = len(text.partition(".")[0])
    negative = number < 0 and any(character in "123456789" for character in text)
    return ("-" if negative else "") + "0" * max(0, width - whole) + text


def date_formatted(value: object, unit: str, epoch: "str | None", path: str) -> str:
    """A date truncated to a unit, in UTC."""
    if epoch is None:
        if not isinstance(value, str):
            raise _format_error(path, "expected a date as a string")
        minutes = _minutes_of_text(value)
        if minutes is None:
            raise _format_error(path, "the string is not a date")
    else:
        if isinstance(value, (bool, str)):
            raise _format_error(path, "expected a number of seconds or milliseconds")
        minutes_number = float(value) / (60.0 if epoch == "seconds" else 60_000.0)
        if not math.isfinite(minutes_number) or abs(math.floor(minutes_number)) > 1e13:
            raise _format_error(path, "the date is outside the years 1 to 9999")
        minutes = math.floor(minutes_number)
    days = minutes // 1440
    if not _FIRST_DAY <= days <= _LAST_DAY:
        raise _format_error(path, "the date is outside the years 1 to 9999")
    year, month, day = _date_of_days(days)
    hour, minute = minutes % 1440 // 60, minutes % 60
    if unit == "year":
        return f"{year:04}"
    if unit == "month":
        return f"{year:04}-{month:02}"
    if unit == "week":
        thursday = days - (days + 3) % 7 + 3
        year = _date_of_days(thursday)[0]
        return f"{year:04}-W{(thursday - _days_of_date(year, 1, 1)) // 7 + 1:02}"
    text = f"{year:04}-{month:02}-{day:02}"
    if unit == "hour":
        return f"{text}T{hour:02}"
    if unit == "minute":
        return f"{text}T{hour:02}:{minute:02}"
    return text


def _minutes_of_text(text: str) -> "int | None":
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    parts = found.groups()
    year, month, day = int(parts[0]), int(parts[1]), int(parts[2])
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= _month_days(year, month):
        return None
    minutes = _days_of_date(year, month, day) * 1440
    if parts[3] is None:
        return minutes
    hour, minute, second = int(parts[3]), int(parts[4]), int(parts[5] or 0)
    offset_hours, offset_minutes = int(parts[7] or 0), int(parts[8] or 0)
    if hour > 23 or minute > 59 or second > 59 or offset_hours > 23 or offset_minutes > 59:
        return None
    offset = offset_hours * 60 + offset_minutes
    return minutes + hour * 60 + minute - (-offset if parts[6] == "-" else offset)


def _month_days(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _days_of_date(year: int, month: int, day: int) -> int:
    if month <= 2:
        year -= 1
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + of_year - 719_468


def _date_of_days(days: int) -> "tuple[int, int, int]":
    era, of_era = divmod(days + 719_468, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    from_march = (5 * of_year + 2) // 153
    day = of_year - (153 * from_march + 2) // 5 + 1
    month = from_march + 3 if from_march < 10 else from_march - 9
    return era * 400 + year_of_era + (1 if month <= 2 else 0), month, day
