//! From text to words: split at word boundaries, lower-cased, stop words removed, stemmed.

use std::collections::HashSet;
use std::sync::OnceLock;

use rust_stemmers::{Algorithm, Stemmer};
use unicode_segmentation::UnicodeSegmentation;

/// The published list; only English has one.
const ENGLISH_STOP_WORDS: &str = include_str!("stopwords-en.json");

/// Words longer than this are kept as they are: no language has stems that long.
const STEMMED_BYTES_MAX: usize = 64;

/// How the text of one language becomes words.
pub struct Analyzer {
    stemmer: Option<Stemmer>,
    stop_words: Option<&'static HashSet<Box<str>>>,
}

/// A word as it is compared, and its place among all words of the text. Stop words are left out
/// but keep their places, so a phrase does not match across them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    pub stem: String,
    pub position: usize,
}

impl Analyzer {
    /// The analyzer of a language such as `en-US`; text of an unknown one is only split and lower-cased.
    pub fn new(language: &str) -> Self {
        let algorithm = match language {
            "en-US" => Some(Algorithm::English),
            "de-DE" => Some(Algorithm::German),
            "es-ES" => Some(Algorithm::Spanish),
            "fr-FR" => Some(Algorithm::French),
            "it-IT" => Some(Algorithm::Italian),
            "pt-BR" | "pt-PT" => Some(Algorithm::Portuguese),
            _ => None,
        };
        let stop_words = (language == "en-US").then(english_stop_words);
        Self { stemmer: algorithm.map(Stemmer::create), stop_words }
    }

    pub fn words(&self, text: &str) -> Vec<Word> {
        let word = |(position, word): (usize, &str)| {
            // Typographic apostrophes read like the plain one in the list of stop words.
            let word = word.to_lowercase().replace('\u{2019}', "'");
            if self.stop_words.is_some_and(|stop_words| stop_words.contains(word.as_str())) {
                return None;
            }
            Some(Word { stem: self.stem(word), position })
        };
        text.unicode_words().enumerate().filter_map(word).collect()
    }

    fn stem(&self, word: String) -> String {
        match &self.stemmer {
            // Numbers and foreign scripts have no stem; the algorithms know Latin letters.
            Some(stemmer) if word.len() <= STEMMED_BYTES_MAX && word.chars().all(is_latin) => {
                stemmer.stem(&word).into_owned()
            }
            _ => word,
        }
    }
}

fn is_latin(character: char) -> bool {
    character == '\'' || (character.is_alphabetic() && character < '\u{250}')
}

fn english_stop_words() -> &'static HashSet<Box<str>> {
    static WORDS: OnceLock<HashSet<Box<str>>> = OnceLock::new();
    WORDS.get_or_init(|| serde_json::from_str(ENGLISH_STOP_WORDS).expect("the list is an array of strings"))
}
