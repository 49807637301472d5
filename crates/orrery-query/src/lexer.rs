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
    /// A name that is not reserved, or may also be used as a name.
    Identifier,
    Keyword(Keyword),
    Number,
    String,
    Parameter,
    Symbol(Symbol),
    Invalid,
    End,
}

#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub kind: TokenKind,
    pub span: Span,
}

macro_rules! keywords {
    ($($name:ident $text:literal),* $(,)?) => {
        /// Reserved words, matched in any case.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Keyword { $($name),* }

        impl Keyword {
            fn find(word: &str) -> Option<Self> {
                $(if word.eq_ignore_ascii_case($text) { return Some(Self::$name); })*
                None
            }
        }
    };
}

keywords! {
    And "AND", Array "ARRAY", As "AS", Asc "ASC", Between "BETWEEN", By "BY", Desc "DESC",
    Distinct "DISTINCT", Escape "ESCAPE", Exists "EXISTS", From "FROM", Group "GROUP", In "IN",
    Join "JOIN", Left "LEFT", Like "LIKE", Limit "LIMIT", Not "NOT", Offset "OFFSET", Or "OR",
    Order "ORDER", Rank "RANK", Right "RIGHT", Select "SELECT", Top "TOP", Value "VALUE",
    Where "WHERE",
}

/// Words that are literals when spelled exactly so.
pub(crate) const LITERAL_WORDS: [&str; 4] = ["true", "false", "null", "undefined"];

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
            let blanks = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            self.at += blanks;
            if !self.rest().starts_with("--") {
                return;
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    fn take(&mut self) -> TokenKind {
        let Some(first) = self.peek() else {
            return TokenKind::End;
        };
        if starts_name(first) {
            let word = self.take_name();
            return Keyword::find(word).map_or(TokenKind::Identifier, TokenKind::Keyword);
        }
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
            self.at += count;
            return self.finish_number(count > 0);
        }
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
        }
        self.finish_number(complete)
    }

    /// A number that runs into a name, such as `12ab`, is no number.
    fn finish_number(&mut self, complete: bool) -> TokenKind {
        if self.peek().is_some_and(starts_name) {
            self.take_name();
            return TokenKind::Invalid;
        }
        if complete { TokenKind::Number } else { TokenKind::Invalid }
    }

    fn take_string(&mut self, quote: char) -> TokenKind {
        self.at += 1;
        let mut valid = true;
        loop {
            let Some(next) = self.peek() else {
                return TokenKind::Invalid;
            };
            self.at += next.len_utf8();
            match next {
                '\\' => {
                    let Some(escaped) = self.peek() else {
                        return TokenKind::Invalid;
                    };
                    self.at += escaped.len_utf8();
                    valid &= matches!(escaped, '\'' | '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' | 'u');
                    if escaped == 'u' {
                        let digits = self.text.as_bytes().get(self.at..self.at + 4).unwrap_or(&[]);
                        valid &= digits.len() == 4 && digits.iter().all(u8::is_ascii_hexdigit);
                    }
                }
                _ if next == quote => {
                    return if valid { TokenKind::String } else { TokenKind::Invalid };
                }
                _ => valid &= next >= ' ',
            }
        }
    }
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
    let mut units: Vec<u16> = Vec::new();
    let mut text = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        let plain = if c == '\\' {
            match chars.next() {
                Some('u') => {
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
        return i64::from_str_radix(digits, 16).map_or_else(
            |_| {
                let value = digits.chars().filter_map(|c| c.to_digit(16));
                Number::Double(value.fold(0.0, |sum, digit| sum * 16.0 + f64::from(digit)))
            },
            Number::Int,
        );
    }
    if let Ok(value) = literal.parse::<i64>() {
        return Number::Int(value);
    }
    if let Ok(value) = literal.parse::<u64>() {
        return Number::Double(value as f64);
    }
    Number::Double(literal.parse().unwrap_or(f64::NAN))
}
