//! Text to tokens.
//!
//! Tokens are spans of the text; values of strings and numbers are decoded when the parser takes
//! them. What is not a token becomes [`TokenKind::Invalid`], so that the parser reports it where it
//! stands and nothing is lost by reading ahead.

use orrery_model::Number;

/// A range of bytes of the query text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    /// From the start of this span to the end of the other.
    #[must_use]
    pub fn to(self, other: Span) -> Span {
        Span { start: self.start, end: other.end }
    }

    /// The text this span covers.
    pub fn of(self, text: &str) -> &str {
        text.get(self.start as usize..self.end as usize).unwrap_or("")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A name that is not reserved. RANK, LET, ALL, FIRST and LAST are among them: the parser knows them by
    /// what follows.
    Identifier,
    Keyword(Keyword),
    Exact(ExactWord),
    Number,
    String,
    Parameter,
    Symbol(Symbol),
    /// Not a token: a character that begins none.
    Invalid,
    /// A number that breaks off or runs into a name, such as `1e` or `12ab`.
    InvalidNumber,
    /// A string that never ends, or an escape that is none.
    InvalidString,
    End,
}

#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub kind: TokenKind,
    pub span: Span,
}

/// No keyword is longer.
const KEYWORD_BYTES_MAX: usize = 8;

macro_rules! keywords {
    ($($name:ident $text:literal),* $(,)?) => {
        /// Reserved words, matched in any case.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Keyword { $($name),* }

        impl Keyword {
            /// Every reserved word, in capitals.
            pub const ALL: &'static [&'static str] = &[$($text),*];

            fn find(word: &str) -> Option<Self> {
                let mut buffer = [0u8; KEYWORD_BYTES_MAX];
                // A longer word does not fit and cannot be a keyword.
                let capitals = buffer.get_mut(..word.len())?;
                capitals.copy_from_slice(word.as_bytes());
                capitals.make_ascii_uppercase();
                match std::str::from_utf8(capitals).ok()? {
                    $($text => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

keywords! {
    And "AND", Array "ARRAY", As "AS", Asc "ASC", Between "BETWEEN", By "BY", Case "CASE", Cast "CAST",
    Convert "CONVERT", Cross "CROSS", Desc "DESC", Distinct "DISTINCT", Else "ELSE", EndWord "END",
    Escape "ESCAPE", Exists "EXISTS", For "FOR", From "FROM", Group "GROUP", Having "HAVING", In "IN",
    Inner "INNER", Insert "INSERT", Into "INTO", Is "IS", Join "JOIN", Left "LEFT", Like "LIKE",
    Limit "LIMIT", Not "NOT", Offset "OFFSET", On "ON", Or "OR", Order "ORDER", Outer "OUTER",
    Over "OVER", Right "RIGHT", Select "SELECT", Set "SET", Then "THEN", Top "TOP", Update "UPDATE",
    Value "VALUE", When "WHEN", Where "WHERE", With "WITH",
}

/// Words that are reserved only when spelled exactly so: `c.TRUE` names a property, `c.true` does not.
const EXACT_WORDS: [(&str, ExactWord); 7] = [
    ("true", ExactWord::True),
    ("false", ExactWord::False),
    ("null", ExactWord::Null),
    ("undefined", ExactWord::Undefined),
    ("NaN", ExactWord::NaN),
    ("Infinity", ExactWord::Infinity),
    ("udf", ExactWord::Udf),
];

/// See `EXACT_WORDS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExactWord {
    True,
    False,
    Null,
    Undefined,
    NaN,
    Infinity,
    Udf,
}

macro_rules! symbols {
    ($($name:ident $text:literal),* $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Symbol { $($name),* }

        /// Longest first, so that `>>>` is not read as `>` three times.
        const SYMBOLS: &[(&str, Symbol)] = &[$(($text, Symbol::$name)),*];
    };
}

symbols! {
    UnsignedShiftRight ">>>", ShiftLeft "<<", ShiftRight ">>", LessOrEqual "<=",
    GreaterOrEqual ">=", NotEqual "!=", NotEqualAngle "<>", Concat "||", Coalesce "??",
    Less "<", Greater ">", Equal "=", Plus "+", Minus "-", Star "*", Slash "/", Percent "%",
    Ampersand "&", Pipe "|", Caret "^", Tilde "~", Question "?", Colon ":", Comma ",", Dot ".",
    ParenOpen "(", ParenClose ")", BracketOpen "[", BracketClose "]", BraceOpen "{", BraceClose "}",
}

/// Splits the text. The last token is always [`TokenKind::End`].
pub fn tokens(text: &str) -> Vec<Token> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::with_capacity(text.len() / 4 + 1);
    loop {
        let token = lexer.next();
        tokens.push(token);
        if token.kind == TokenKind::End {
            return tokens;
        }
    }
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl Lexer<'_> {
    fn next(&mut self) -> Token {
        self.skip_blanks();
        let start = self.at;
        let kind = self.take();
        #[expect(clippy::cast_possible_truncation, reason = "the text is at most 512 KB")]
        let span = Span { start: start as u32, end: self.at as u32 };
        Token { kind, span }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start().len();
            // A comment extends to the end of its line.
            if !self.rest().starts_with("--") {
                return;
            }
            self.at += self.rest().find(['\n', '\r']).unwrap_or(self.rest().len());
        }
    }

    fn take(&mut self) -> TokenKind {
        let Some(first) = self.peek() else {
            return TokenKind::End;
        };
        if starts_name(first) {
            let word = self.take_name();
            if let Some((_, exact)) = EXACT_WORDS.iter().find(|(text, _)| *text == word) {
                return TokenKind::Exact(*exact);
            }
            return Keyword::find(word).map_or(TokenKind::Identifier, TokenKind::Keyword);
        }
        // A point begins a number only before a digit; otherwise it is property access.
        let second = self.text.as_bytes().get(self.at + 1).copied().unwrap_or(0);
        if first.is_ascii_digit() || (first == '.' && second.is_ascii_digit()) {
            return self.take_number();
        }
        match first {
            '"' | '\'' => return self.take_string(first),
            '@' => {
                self.at += 1;
                if self.peek().is_some_and(starts_name) {
                    self.take_name();
                    return TokenKind::Parameter;
                }
                return TokenKind::Invalid;
            }
            _ => {}
        }
        for (symbol_text, symbol) in SYMBOLS {
            if self.rest().starts_with(symbol_text) {
                self.at += symbol_text.len();
                return TokenKind::Symbol(*symbol);
            }
        }
        self.at += first.len_utf8();
        TokenKind::Invalid
    }

    fn take_name(&mut self) -> &str {
        let start = self.at;
        let length = self.rest().find(|c| !continues_name(c)).unwrap_or(self.rest().len());
        self.at += length;
        &self.text[start..self.at]
    }

    fn take_digits(&mut self) -> usize {
        let rest = self.rest();
        let count = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        self.at += count;
        count
    }

    fn take_number(&mut self) -> TokenKind {
        let rest = self.rest();
        if rest.starts_with("0x") || rest.starts_with("0X") {
            self.at += 2;
            let rest = self.rest();
            let count = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_hexdigit()).len();
            // A hexadecimal literal is an integer of 64 bits.
            let fits = rest.get(..count).is_some_and(|digits| u64::from_str_radix(digits, 16).is_ok());
            self.at += count;
            return self.finish_number(fits);
        }
        let start = self.at;
        self.take_digits();
        if self.rest().starts_with('.') {
            self.at += 1;
            self.take_digits();
        }
        let mut complete = true;
        if self.rest().starts_with(['e', 'E']) {
            self.at += 1;
            if self.rest().starts_with(['+', '-']) {
                self.at += 1;
            }
            complete = self.take_digits() > 0;
            let value = self.text[start..self.at].parse::<f64>();
            // What is beyond the largest double is an error.
            complete &= value.is_ok_and(f64::is_finite);
        }
        self.finish_number(complete)
    }

    fn finish_number(&mut self, complete: bool) -> TokenKind {
        let start = self.at;
        // A name that touches the number belongs to the error.
        if self.peek().is_some_and(continues_name) {
            self.take_name();
        }
        if complete && self.at == start { TokenKind::Number } else { TokenKind::InvalidNumber }
    }

    /// A string may span lines. A backslash takes the next character as it is, except for the escapes of JSON.
    fn take_string(&mut self, quote: char) -> TokenKind {
        self.at += 1;
        loop {
            let Some(next) = self.peek() else {
                return TokenKind::InvalidString;
            };
            self.at += next.len_utf8();
            if next == quote {
                return TokenKind::String;
            }
            if next != '\\' {
                continue;
            }
            let Some(escaped) = self.peek() else {
                return TokenKind::InvalidString;
            };
            self.at += escaped.len_utf8();
            if escaped == 'u' {
                // `\u` takes exactly four digits.
                for _ in 0..4 {
                    let Some(digit) = self.peek() else {
                        return TokenKind::InvalidString;
                    };
                    self.at += digit.len_utf8();
                    if !digit.is_ascii_hexdigit() {
                        return TokenKind::InvalidString;
                    }
                }
            }
        }
    }
}

/// Whether the text, standing alone, is a name that is not reserved.
pub(crate) fn is_name(text: &str) -> bool {
    let found = tokens(text);
    matches!(found.first(), Some(token) if token.kind == TokenKind::Identifier && token.span.of(text) == text)
}

pub(crate) fn starts_name(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

pub(crate) fn continues_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// The text a string token stands for.
///
/// An escaped half of a surrogate pair that has no other half becomes U+FFFD: values are Unicode.
pub fn decode_string(literal: &str) -> String {
    let inner = literal.get(1..literal.len().saturating_sub(1)).unwrap_or("");
    if !inner.contains('\\') {
        return inner.to_owned();
    }
    // Code units are collected and decoded together, because a surrogate pair takes two escapes.
    let mut units: Vec<u16> = Vec::new();
    let mut text = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        let plain = if c == '\\' {
            match chars.next() {
                Some('u') => {
                    // Four hexadecimal digits follow: the lexer has checked it.
                    let digits: String = chars.by_ref().take(4).collect();
                    units.push(u16::from_str_radix(&digits, 16).unwrap_or(0xFFFD));
                    continue;
                }
                Some('b') => '\u{8}',
                Some('f') => '\u{C}',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some(other) => other,
                None => break,
            }
        } else {
            c
        };
        flush_units(&mut units, &mut text);
        text.push(plain);
    }
    flush_units(&mut units, &mut text);
    text
}

fn flush_units(units: &mut Vec<u16>, text: &mut String) {
    if !units.is_empty() {
        text.push_str(&String::from_utf16_lossy(units));
        units.clear();
    }
}

/// The number a number token stands for.
#[expect(clippy::cast_precision_loss, reason = "integers beyond 63 bits are doubles")]
pub fn decode_number(literal: &str) -> Number {
    if let Some(digits) = literal.strip_prefix("0x").or_else(|| literal.strip_prefix("0X")) {
        // 64 bits, of which the first is the sign.
        return Number::Int(u64::from_str_radix(digits, 16).unwrap_or(0).cast_signed());
    }
    // In the order that keeps most digits: a 64-bit integer, otherwise a double.
    if let Ok(value) = literal.parse::<i64>() {
        return Number::Int(value);
    }
    if let Ok(value) = literal.parse::<u64>() {
        return Number::Double(value as f64);
    }
    Number::Double(literal.parse().unwrap_or(f64::NAN))
}
