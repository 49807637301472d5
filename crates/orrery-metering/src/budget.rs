//! The budget of one physical partition, in hundredths of a request unit.
//!
//! Time is divided into seconds. A request is admitted while the second's usage is below its limit, and may then
//! overshoot; the overshoot is a debt of the following seconds, so that the average rate is the provisioned one. Unused
//! units go into a bank of up to 300 seconds' worth, from which a partition with less than 3,000 units may burst up to
//! that rate.

use orrery_model::Charge;
use parking_lot::Mutex;

/// The service's rate up to which a partition may burst, in request units.
pub const BURST_PER_SECOND: u64 = 3_000;
/// How many seconds of unused throughput are banked.
const BANK_SECONDS: u64 = 300;

/// The priority of a request. When a second's budget runs short, low priority is throttled first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    #[default]
    High,
    Low,
}

/// A second's budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttled {
    pub retry_after_ms: u32,
}

/// The budget of a partition and its usage.
#[derive(Debug, Default)]
pub struct Budget {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// Per second. 0 = there is no limit.
    rate: u64,
    /// The rate up to which the bank may be spent.
    burst: u64,
    /// Seconds of unused throughput that are banked.
    bank_seconds: u64,
    /// The current second; none before the first request, after which unused units are banked.
    second: Option<i64>,
    /// Used in this second, including the debt of earlier seconds.
    used: u64,
    used_by_high: u64,
    /// High priority was throttled in this second.
    high_refused: bool,
    /// Reserved for high priority: its usage in the last second, or everything if that was not enough.
    reserved: u64,
    bank: u64,
}

impl Budget {
    /// Sets the rate, in request units per second. The bank shrinks with it.
    pub fn set_rate(&self, units_per_second: u64) {
        let mut state = self.state.lock();
        state.rate = units_per_second.saturating_mul(100);
        state.bank_seconds = BANK_SECONDS;
        // A lower rate could not have saved up more.
        state.bank = state.bank.min(state.rate.saturating_mul(BANK_SECONDS));
    }

    /// Sets the rate up to which the bank may be spent, in request units per second.
    pub fn set_burst(&self, units_per_second: u64) {
        self.state.lock().burst = units_per_second.saturating_mul(100);
    }

    /// What earlier seconds have left over: the bank, as long as this second is not spent. `None` if there is no limit.
    pub fn left_over(&self, now_ms: i64) -> Option<Charge> {
        let mut state = self.state.lock();
        state.roll(now_ms.div_euclid(1000));
        // In a second that is spent, the bank is what requests go on with.
        let left = if state.used < state.rate { state.bank } else { 0 };
        (state.rate > 0).then(|| Charge::from_hundredths(left))
    }

    /// Takes what earlier seconds have left over. What exceeds it is a debt like that of a request.
    pub fn spend_left_over(&self, now_ms: i64, charge: Charge) {
        let mut state = self.state.lock();
        state.roll(now_ms.div_euclid(1000));
        // From the bank directly, so that the budget of this second stays with the requests.
        let from_bank = charge.hundredths().min(state.bank);
        state.bank -= from_bank;
        state.used += charge.hundredths() - from_bank;
    }

    /// Fills the bank, as after a long idle time.
    pub fn fill_bank(&self) {
        let mut state = self.state.lock();
        state.bank = state.rate.saturating_mul(state.bank_seconds);
    }

    /// Sets a rate in hundredths of a unit per second, above which there is no burst.
    pub fn set_hard_rate(&self, hundredths_per_second: u64) {
        let mut state = self.state.lock();
        state.rate = hundredths_per_second;
        // A share that must not be exceeded must not be saved up either.
        (state.bank_seconds, state.bank) = (0, 0);
    }

    /// Admits a request, or returns when the next one would be admitted.
    pub fn admit(&self, now_ms: i64, priority: Priority) -> Result<(), Throttled> {
        let mut state = self.state.lock();
        state.roll(now_ms.div_euclid(1000));
        if state.rate == 0 {
            return Ok(());
        }
        let limit = state.limit();
        let used = match priority {
            Priority::High => state.used,
            // Low priority also counts as used what high priority is still expected to use in this second.
            Priority::Low => state.used + state.reserved.saturating_sub(state.used_by_high),
        };
        // Below the limit is enough, however large the request: its overshoot is a debt.
        if used < limit {
            return Ok(());
        }
        // The next second is then reserved for high priority as a whole.
        state.high_refused |= priority == Priority::High;
        // The rest of this second, plus whole seconds for the debt.
        // The debt is what neither the rate nor the bank covers; each second pays back one rate of it.
        let owed = state.used.saturating_sub(state.rate).saturating_sub(state.bank);
        let rest_ms = (now_ms.div_euclid(1000) + 1) * 1000 - now_ms;
        let more_ms = owed / state.rate * 1000;
        let retry_after_ms = u64::try_from(rest_ms.max(1)).unwrap_or(1) + more_ms;
        Err(Throttled { retry_after_ms: u32::try_from(retry_after_ms).unwrap_or(u32::MAX) })
    }

    /// Whether this second's budget is spent.
    pub fn is_spent(&self, now_ms: i64) -> bool {
        let mut state = self.state.lock();
        state.roll(now_ms.div_euclid(1000));
        state.rate > 0 && state.used >= state.limit()
    }

    /// Adds the charge of an admitted request.
    pub fn settle(&self, now_ms: i64, charge: Charge, priority: Priority) {
        let mut state = self.state.lock();
        state.roll(now_ms.div_euclid(1000));
        // Without a check: the work is done, and its whole charge counts.
        state.used += charge.hundredths();
        if priority == Priority::High {
            state.used_by_high += charge.hundredths();
        }
        debug_assert!(state.used_by_high <= state.used, "high priority is a part of all use");
    }

    /// The banked units.
    pub fn banked(&self) -> Charge {
        Charge::from_hundredths(self.state.lock().bank)
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            rate: 0,
            burst: BURST_PER_SECOND * 100,
            bank_seconds: 0,
            second: None,
            used: 0,
            used_by_high: 0,
            high_refused: false,
            reserved: 0,
            bank: 0,
        }
    }
}

impl State {
    /// The limit of this second: the rate, or more while the bank is not empty.
    fn limit(&self) -> u64 {
        // At least the rate, which may be above the burst rate.
        self.rate.max((self.rate + self.bank).min(self.burst))
    }

    /// Closes the seconds that have passed.
    fn roll(&mut self, second: i64) {
        // A clock that was moved back leaves everything as it is until it catches up.
        let before = *self.second.get_or_insert(second);
        let passed = u64::try_from(second.saturating_sub(before)).unwrap_or(0);
        if passed == 0 {
            return;
        }
        // The second that ends: what it used beyond its rate comes from the bank first, the rest is owed.
        let over = self.used.saturating_sub(self.rate);
        let from_bank = over.min(self.bank);
        let owed = over - from_bank;
        // What it left over, and whole seconds without any request. Those pay the debt before they fill the bank.
        let unused = self.rate.saturating_sub(self.used);
        let idle = self.rate.saturating_mul(passed - 1);
        let bank = (self.bank - from_bank).saturating_add(unused).saturating_add(idle.saturating_sub(owed));
        self.bank = bank.min(self.rate.saturating_mul(self.bank_seconds));
        debug_assert!(from_bank <= self.used && owed <= over, "what is taken from the bank was used");
        // The remaining debt is the first use of the new second.
        self.used = owed.saturating_sub(idle);
        // A forecast from the last second; after a pause there is nothing to go by.
        self.reserved = match passed {
            1 if self.high_refused => self.limit(),
            1 => self.used_by_high.min(self.rate),
            _ => 0,
        };
        self.used_by_high = 0;
        self.high_refused = false;
        self.second = Some(second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Charge = Charge::from_hundredths(1000);

    /// Sends requests of ten units at this rate, retrying each after its retry-after delay, and counts the units
    /// delivered.
    fn deliver(budget: &Budget, from_ms: i64, seconds: i64, per_second: i64, priority: Priority) -> u64 {
        let mut delivered = 0;
        for at in 0..seconds * per_second {
            let now_ms = from_ms + at * 1000 / per_second;
            if budget.admit(now_ms, priority).is_ok() {
                budget.settle(now_ms, COST, priority);
                delivered += 10;
            }
        }
        delivered
    }

    fn fresh(rate: u64, now_ms: i64) -> Budget {
        let budget = Budget::default();
        budget.admit(now_ms, Priority::High).unwrap();
        budget.set_rate(rate);
        budget
    }

    #[test]
    fn sustained_overload_delivers_the_budget() {
        for rate in [405u64, 1000, 3333, 9999] {
            let budget = fresh(rate, 1_000_000);
            let per_second = i64::try_from(rate).unwrap();
            let delivered = deliver(&budget, 1_000_000, 60, per_second, Priority::High);
            let provisioned = rate * 60;
            assert!(
                delivered * 100 >= provisioned * 95 && delivered * 100 <= provisioned * 105,
                "{rate}: {delivered}"
            );
        }
    }

    #[test]
    fn an_idle_partition_may_burst_until_its_bank_is_empty() {
        let budget = fresh(400, 0);
        // 300 seconds and more of doing nothing bank 300 seconds' worth.
        assert_eq!(deliver(&budget, 400_000, 1, 1000, Priority::High), 3000);
        assert!(budget.banked().hundredths() <= 120_000 * 100);
        let delivered = deliver(&budget, 401_000, 60, 1000, Priority::High);
        assert!((120_000 + 60 * 400 - 4000..=120_000 + 61 * 400).contains(&delivered), "{delivered}");
        // Then only the rate is left.
        let delivered = deliver(&budget, 461_000, 10, 1000, Priority::High);
        assert!(delivered <= 4400, "{delivered}");
        let large = fresh(5000, 0);
        assert_eq!(deliver(&large, 400_000, 1, 2000, Priority::High), 5000);
    }

    #[test]
    fn what_is_left_over_takes_nothing_from_the_current_second() {
        let budget = fresh(400, 0);
        assert_eq!(budget.left_over(500), Some(Charge::ZERO));
        budget.settle(500, Charge::from_hundredths(30_000), Priority::High);
        assert_eq!(budget.left_over(1_000), Some(Charge::from_hundredths(10_000)));
        budget.spend_left_over(1_000, Charge::from_hundredths(9_000));
        assert_eq!(
            deliver(&budget, 1_000, 1, 1000, Priority::High),
            410,
            "the second and the rest of the bank"
        );
        assert_eq!(budget.left_over(1_999), Some(Charge::ZERO));
        assert_eq!(Budget::default().left_over(0), None);
    }

    #[test]
    fn the_burst_can_be_scaled() {
        let budget = fresh(400, 0);
        budget.set_burst(600);
        assert_eq!(deliver(&budget, 400_000, 1, 1000, Priority::High), 600);
    }

    #[test]
    fn low_priority_waits_first() {
        let budget = fresh(400, 0);
        let (mut high, mut low) = (0, 0);
        for step in 0..10_000i64 {
            let now_ms = step * 2;
            for (priority, delivered) in [(Priority::Low, &mut low), (Priority::High, &mut high)] {
                if budget.admit(now_ms, priority).is_ok() {
                    budget.settle(now_ms, COST, priority);
                    *delivered += 10;
                }
            }
        }
        assert!(high > low * 10, "{high} {low}");
    }

    #[test]
    fn the_delay_is_true() {
        let budget = fresh(100, 0);
        // One large request overshoots by three seconds and a half.
        budget.admit(200, Priority::High).unwrap();
        budget.settle(200, Charge::from_hundredths(45_000), Priority::High);
        let Throttled { retry_after_ms } = budget.admit(300, Priority::High).unwrap_err();
        let again = 300 + i64::from(retry_after_ms);
        assert!(budget.admit(again - 1, Priority::High).is_err());
        budget.admit(again, Priority::High).unwrap();
    }

    #[test]
    fn a_hard_rate_has_no_burst() {
        let budget = fresh(400, 0);
        budget.set_hard_rate(100 * 100);
        assert_eq!(deliver(&budget, 400_000, 1, 1000, Priority::High), 100);
        assert_eq!(budget.banked(), Charge::ZERO);
    }

    #[test]
    fn without_a_rate_there_is_no_limit() {
        let budget = Budget::default();
        for _ in 0..100 {
            budget.admit(0, Priority::Low).unwrap();
            budget.settle(0, Charge::from_hundredths(1_000_000), Priority::Low);
        }
    }
}
