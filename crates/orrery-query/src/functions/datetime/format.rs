//! Writing a moment by a picture.
//!
//! `yyyy` and `yy`, `MM` and `M`, `dd` and `d`, `HH` and `H`, `hh` and `h` (of twelve hours), `mm` and `m`, `ss` and
//! `s` stand for the parts, two letters or more with a leading zero, `tt` for AM or PM; one to seven `f` for digits of the fraction, as many
//! `F` for the same without trailing zeros. A backslash makes the next character stand for itself,
//! as every other character does.

use std::fmt::Write;

use super::moment::{Date, Moment};

pub(super) fn format(moment: Moment, picture: &str) -> String {
    let Date { year, month, day } = moment.date();
    let [hour, minute, second, fraction] = moment.time();
    let mut text = String::with_capacity(picture.len() + 8);
    let mut rest = picture;
    while let Some(letter) = rest.chars().next() {
        let run = rest.bytes().take_while(|byte| char::from(*byte) == letter).count();
        let part = match letter {
            'M' => Some(month),
            'd' => Some(day),
            'H' => Some(hour),
            // Noon and midnight are 12.
            'h' => Some((hour + 11) % 12 + 1),
            'm' => Some(minute),
            's' => Some(second),
            _ => None,
        };
        let used = match (letter, part) {
            ('\\', _) => {
                let mut literal = rest[1..].chars();
                // A backslash with nothing behind it stands for itself.
                text.push(literal.next().unwrap_or('\\'));
                rest = literal.as_str();
                continue;
            }
            (_, Some(part)) => {
                let width = run.min(2);
                write(&mut text, format_args!("{part:0width$}"));
                run
            }
            ('y', _) if run >= 4 => {
                write(&mut text, format_args!("{year:04}"));
                run
            }
            ('y', _) => {
                write(&mut text, format_args!("{:02}", year % 100));
                run
            }
            ('t', _) if run >= 2 => {
                text.push_str(if hour < 12 { "AM" } else { "PM" });
                run
            }
            ('f' | 'F', _) => {
                // A fraction has seven digits; further letters begin a part of their own.
                let width = run.min(7);
                let digits = format!("{fraction:07}");
                let digits = &digits[..width];
                text.push_str(if letter == 'F' { digits.trim_end_matches('0') } else { digits });
                width
            }
            _ => {
                text.push(letter);
                letter.len_utf8()
            }
        };
        rest = &rest[used..];
    }
    text
}

fn write(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("a String accepts every write");
}
