// Formats numbers and dates, identically in every implementation.

import { SyntheticKeyError } from "./errors.js";

const FIRST_DAY = -719162;
const LAST_DAY = 2932896;
const DATE = /^(\d{4})-(\d\d)-(\d\d)(?:T(\d\d):(\d\d)(?::(\d\d)(?:\.\d+)?)?(?:Z|([+-])(\d\d):(\d\d))?)?$/;

const refuse = (path, message) =>
  new SyntheticKeyError("format", `the property ${path} does not fit its format: ${message}`);
const pad = (number, width) => String(number).padStart(width, "0");

/** A number as ECMAScript prints it. */
export function numberText(number, path) {
  if (!Number.isFinite(number)) throw refuse(path, "the number is not finite");
  return String(number === 0 ? 0 : number);
}

/** A number with fixed decimals (rounded half to even on the exact value), a width or a bucket. */
export function numberFormatted(number, { decimals, width, bucket }, path) {
  if (!Number.isFinite(number) || Math.abs(number) > Number.MAX_SAFE_INTEGER) {
    throw refuse(path, "the number is beyond the exact range of doubles");
  }
  if (bucket !== undefined) number = Math.floor(number / bucket) * bucket;
  let text;
  if (decimals !== undefined) text = fixed(Math.abs(number), decimals);
  else if (width > 0 && !Number.isInteger(number)) {
    throw refuse(path, "expected a whole number; set decimals for fractions");
  } else text = numberText(Math.abs(number), path);
  const whole = text.split(".")[0].length;
  const negative = number < 0 && /[1-9]/.test(text);
  return (negative ? "-" : "") + "0".repeat(Math.max(0, width - whole)) + text;
}

/** Like toFixed, but ties round to the even digit, as in other languages. */
function fixed(number, decimals) {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, number);
  const bits = view.getBigUint64(0);
  const exponent = Number((bits >> 52n) & 0x7ffn);
  const fraction = bits & 0xfffffffffffffn;
  const mantissa = exponent === 0 ? fraction : fraction | (1n << 52n);
  const shift = (exponent === 0 ? 1 : exponent) - 1075;
  const scaled = mantissa * 10n ** BigInt(decimals);
  let digits;
  if (shift >= 0) digits = scaled << BigInt(shift);
  else {
    const unit = 1n << BigInt(-shift);
    digits = scaled / unit;
    const rest = (scaled % unit) * 2n;
    if (rest > unit || (rest === unit && digits % 2n === 1n)) digits += 1n;
  }
  const text = digits.toString().padStart(decimals + 1, "0");
  return decimals === 0 ? text : `${text.slice(0, -decimals)}.${text.slice(-decimals)}`;
}

/** A date truncated to a unit, in UTC. */
export function dateFormatted(value, unit, epoch, path) {
  let minutes;
  if (epoch === undefined) {
    if (typeof value !== "string") throw refuse(path, "expected a date as a string");
    minutes = minutesOfText(value);
    if (minutes === undefined) throw refuse(path, "the string is not a date");
  } else {
    if (typeof value !== "number") throw refuse(path, "expected a number of seconds or milliseconds");
    minutes = Math.floor(value / (epoch === "seconds" ? 60 : 60000));
    if (!(Math.abs(minutes) <= 1e13)) throw refuse(path, "the date is outside the years 1 to 9999");
  }
  const days = Math.floor(minutes / 1440);
  if (days < FIRST_DAY || days > LAST_DAY) throw refuse(path, "the date is outside the years 1 to 9999");
  const { year, month, day } = dateOfDays(days);
  const ofDay = minutes - days * 1440;
  if (unit === "year") return pad(year, 4);
  if (unit === "month") return `${pad(year, 4)}-${pad(month, 2)}`;
  if (unit === "week") {
    // A week belongs to the year of its Thursday.
    const thursday = days - ((((days + 3) % 7) + 7) % 7) + 3;
    const of = dateOfDays(thursday).year;
    return `${pad(of, 4)}-W${pad(Math.floor((thursday - daysOfDate(of, 1, 1)) / 7) + 1, 2)}`;
  }
  const text = `${pad(year, 4)}-${pad(month, 2)}-${pad(day, 2)}`;
  if (unit === "day") return text;
  const hour = `${text}T${pad(Math.floor(ofDay / 60), 2)}`;
  return unit === "hour" ? hour : `${hour}:${pad(ofDay % 60, 2)}`;
}

function minutesOfText(text) {
  const found = DATE.exec(text);
  if (!found || text.endsWith("\n")) return undefined;
  const [year, month, day, hour, minute, second] = found.slice(1, 7).map((part) => Number(part ?? 0));
  const [offsetHours, offsetMinutes] = [Number(found[8] ?? 0), Number(found[9] ?? 0)];
  if (year < 1 || month < 1 || month > 12 || day < 1 || day > monthDays(year, month)) return undefined;
  if (hour > 23 || minute > 59 || second > 59 || offsetHours > 23 || offsetMinutes > 59) return undefined;
  const offset = offsetHours * 60 + offsetMinutes;
  return daysOfDate(year, month, day) * 1440 + hour * 60 + minute - (found[7] === "-" ? -offset : offset);
}

function monthDays(year, month) {
  if (month === 2) return year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0) ? 29 : 28;
  return [4, 6, 9, 11].includes(month) ? 30 : 31;
}

function daysOfDate(year, month, day) {
  if (month <= 2) year -= 1;
  const ofYear = Math.floor((153 * ((month + 9) % 12) + 2) / 5) + day - 1;
  const leaps = Math.floor(year / 4) - Math.floor(year / 100) + Math.floor(year / 400);
  return year * 365 + leaps + ofYear - 719468;
}

function dateOfDays(days) {
  const shifted = days + 719468;
  const era = Math.floor(shifted / 146097);
  const ofEra = shifted - era * 146097;
  const leaps = Math.floor(ofEra / 1460) - Math.floor(ofEra / 36524) + Math.floor(ofEra / 146096);
  const yearOfEra = Math.floor((ofEra - leaps) / 365);
  const ofYear = ofEra - (365 * yearOfEra + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100));
  const fromMarch = Math.floor((5 * ofYear + 2) / 153);
  const day = ofYear - Math.floor((153 * fromMarch + 2) / 5) + 1;
  const month = fromMarch < 10 ? fromMarch + 3 : fromMarch - 9;
  return { year: era * 400 + yearOfEra + (month <= 2 ? 1 : 0), month, day };
}
