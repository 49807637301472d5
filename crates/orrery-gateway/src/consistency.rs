//! Consistency levels: the account's default, what requests may ask for, and what it means here.
//!
//! Every read is served from the newest state, so all levels are satisfied. The observable differences are those of the
//! service: requests may relax the account's level but not strengthen it, session tokens are checked at Session, and
//! reads at the two strongest levels cost twice as much.

use http::HeaderMap;
use orrery_model::session::SessionToken;
use orrery_model::{Error, Object, Result, Value};

use crate::headers;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConsistencyLevel {
    Strong,
    BoundedStaleness,
    #[default]
    Session,
    ConsistentPrefix,
    Eventual,
}

impl ConsistencyLevel {
    pub const ALL: [Self; 5] =
        [Self::Strong, Self::BoundedStaleness, Self::Session, Self::ConsistentPrefix, Self::Eventual];

    pub fn name(self) -> &'static str {
        match self {
            Self::Strong => "Strong",
            Self::BoundedStaleness => "BoundedStaleness",
            Self::Session => "Session",
            Self::ConsistentPrefix => "ConsistentPrefix",
            Self::Eventual => "Eventual",
        }
    }

    /// Parses a level, case-insensitively and with or without hyphens.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().replace('-', "");
        Self::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(&text))
    }

    /// Whether a request may ask for this level. The three weakest are always allowed: a session is identified by its
    /// token.
    fn is_allowed_by(self, account: Self) -> bool {
        match self {
            Self::Strong => account == Self::Strong,
            Self::BoundedStaleness => matches!(account, Self::Strong | Self::BoundedStaleness),
            Self::Session | Self::ConsistentPrefix | Self::Eventual => true,
        }
    }

    /// Whether reads query two replicas in the service, and thus cost double.
    pub(crate) fn reads_cost_double(self) -> bool {
        matches!(self, Self::Strong | Self::BoundedStaleness)
    }
}

/// The account's default consistency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountConsistency {
    pub level: ConsistencyLevel,
    /// How many versions and how many seconds reads may lag behind, under bounded staleness.
    pub max_staleness_prefix: u32,
    pub max_staleness_seconds: u32,
}

impl Default for AccountConsistency {
    fn default() -> Self {
        Self { level: ConsistencyLevel::Session, max_staleness_prefix: 100, max_staleness_seconds: 5 }
    }
}

impl AccountConsistency {
    /// The policy as the account document shows it.
    pub(crate) fn to_value(self) -> Value {
        let mut policy = Object::new();
        policy.set("defaultConsistencyLevel", Value::from(self.level.name()));
        // Bounds mean nothing at the other levels.
        if self.level == ConsistencyLevel::BoundedStaleness {
            policy.set("maxStalenessPrefix", Value::from(i64::from(self.max_staleness_prefix)));
            policy.set("maxIntervalInSeconds", Value::from(i64::from(self.max_staleness_seconds)));
        }
        policy.into()
    }

    /// The effective level of a request.
    pub(crate) fn level_of(self, sent: &HeaderMap) -> Result<ConsistencyLevel> {
        // The newer header wins over the older one; its default leaves the choice to the older one.
        let strategy = headers::non_empty(sent, headers::READ_CONSISTENCY_STRATEGY);
        let strategy = strategy.filter(|text| !text.eq_ignore_ascii_case("default"));
        let (header, text) = match (strategy, headers::non_empty(sent, headers::CONSISTENCY_LEVEL)) {
            (Some(text), _) => (headers::READ_CONSISTENCY_STRATEGY, text),
            (None, Some(text)) => (headers::CONSISTENCY_LEVEL, text),
            (None, None) => return Ok(self.level),
        };
        let asked = match text.to_ascii_lowercase().as_str() {
            // Reads always return the latest commit; this level involves no session.
            "latestcommitted" if strategy.is_some() => return Ok(self.level),
            "globalstrong" if strategy.is_some() => Some(ConsistencyLevel::Strong),
            _ => ConsistencyLevel::parse(text),
        };
        let asked = asked.ok_or_else(|| headers::invalid(header, text))?;
        if asked.is_allowed_by(self.level) {
            return Ok(asked);
        }
        Err(Error::bad_request(format!(
            "ConsistencyLevel {} specified in the request is invalid when service is configured with consistency level {}. Ensure the request consistency level is not stronger than the service consistency level.",
            asked.name(),
            self.level.name(),
        )))
    }

    /// The session token to check, if the level is Session.
    pub(crate) fn session_of(self, sent: &HeaderMap) -> Result<Option<SessionToken>> {
        let level = self.level_of(sent)?;
        // Parsed at every level, so that a malformed token is an error even where it would not be used.
        let token = headers::non_empty(sent, headers::SESSION_TOKEN).map(SessionToken::parse).transpose()?;
        Ok(token.filter(|_| level == ConsistencyLevel::Session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn levels_may_be_relaxed_but_not_strengthened() {
        use ConsistencyLevel::{BoundedStaleness, ConsistentPrefix, Eventual, Session, Strong};
        let allowed = [
            (Strong, vec![Strong, BoundedStaleness, Session, ConsistentPrefix, Eventual]),
            (BoundedStaleness, vec![BoundedStaleness, Session, ConsistentPrefix, Eventual]),
            (Session, vec![Session, ConsistentPrefix, Eventual]),
            (ConsistentPrefix, vec![Session, ConsistentPrefix, Eventual]),
            (Eventual, vec![Session, ConsistentPrefix, Eventual]),
        ];
        for (level, allowed) in allowed {
            let account = AccountConsistency { level, ..AccountConsistency::default() };
            assert_eq!(account.level_of(&HeaderMap::new()), Ok(level));
            for asked in ConsistencyLevel::ALL {
                let outcome = account.level_of(&sent(&[(headers::CONSISTENCY_LEVEL, asked.name())]));
                assert_eq!(outcome.is_ok(), allowed.contains(&asked), "{level:?} {asked:?}");
                assert_eq!(outcome.unwrap_or(asked), asked);
            }
        }
    }

    #[test]
    fn sessions_are_kept_where_the_level_is_session() {
        let account = |level| AccountConsistency { level, ..AccountConsistency::default() };
        let token = (headers::SESSION_TOKEN, "0:0#5");
        let ask = |level, pairs: &[_]| account(level).session_of(&sent(pairs));
        assert!(ask(ConsistencyLevel::Session, &[token]).unwrap().is_some());
        assert!(ask(ConsistencyLevel::Strong, &[token]).unwrap().is_none());
        let session = (headers::CONSISTENCY_LEVEL, "Session");
        assert!(ask(ConsistencyLevel::Strong, &[token, session]).unwrap().is_some());
        let eventual = (headers::CONSISTENCY_LEVEL, "Eventual");
        assert!(ask(ConsistencyLevel::Session, &[token, eventual]).unwrap().is_none());
        assert!(ask(ConsistencyLevel::Session, &[(headers::SESSION_TOKEN, "nonsense")]).is_err());
        assert!(ask(ConsistencyLevel::Session, &[(headers::CONSISTENCY_LEVEL, "Total")]).is_err());
        // The newer header takes precedence.
        let committed = (headers::READ_CONSISTENCY_STRATEGY, "LatestCommitted");
        assert!(ask(ConsistencyLevel::Session, &[token, committed, eventual]).unwrap().is_some());
        let global = (headers::READ_CONSISTENCY_STRATEGY, "GlobalStrong");
        assert!(ask(ConsistencyLevel::Session, &[global]).is_err());
        assert!(ask(ConsistencyLevel::Strong, &[global]).is_ok());
    }
}
