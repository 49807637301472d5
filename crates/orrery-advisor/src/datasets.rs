//! Generated sample data with a known best key: for tests of the advisor, benchmarks and the guide.

use std::fmt::Write;

use crate::moment;
use crate::random::{Random, Zipf};

/// 2026-01-01T00:00:00Z.
const START_MS: i64 = 1_767_225_600_000;
const DAY_MS: i64 = 86_400_000;

/// A kind of application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSet {
    /// Device telemetry, queried by device and day. Best key: the device.
    Telemetry,
    /// Tenants with users, one tenant much larger than the others, queried by tenant. Best key: tenant, then user.
    Tenants,
    /// Orders and their lines, written together, queried by customer. Best key: the customer.
    Orders,
    /// Vehicle events, all written today, queried by day, and by day and vehicle. Best key: the date with a suffix
    /// computed from the vehicle.
    Vehicles,
}

impl DataSet {
    /// Every data set, for the help text and tests.
    pub const ALL: [Self; 4] = [Self::Telemetry, Self::Tenants, Self::Orders, Self::Vehicles];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Telemetry => "telemetry",
            Self::Tenants => "tenants",
            Self::Orders => "orders",
            Self::Vehicles => "vehicles",
        }
    }

    /// The data set with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.name() == name)
    }

    /// Request units per second that suit the workload.
    pub fn throughput(self) -> u32 {
        match self {
            Self::Telemetry => 18_000,
            Self::Tenants | Self::Orders => 24_000,
            Self::Vehicles => 48_000,
        }
    }

    /// The workload of the container.
    pub fn workload(self) -> String {
        let operations = match self {
            Self::Telemetry => {
                r#"{"operation":"create","perSecond":1400},
                {"operation":"read","perSecond":100,"knows":["/deviceId"]},
                {"operation":"query","perSecond":300,"query":"SELECT * FROM c WHERE c.deviceId = @device AND c.day = @day","parameters":{"@device":"/deviceId","@day":"/day"}},
                {"operation":"query","perSecond":100,"query":"SELECT TOP 10 * FROM c WHERE c.deviceId = @device","parameters":{"@device":"/deviceId"}}"#
            }
            Self::Tenants => {
                r#"{"operation":"create","perSecond":300},
                {"operation":"read","perSecond":500,"knows":["/tenantId","/userId"]},
                {"operation":"query","perSecond":400,"query":"SELECT TOP 20 * FROM c WHERE c.tenantId = @tenant","parameters":{"@tenant":"/tenantId"}},
                {"operation":"query","perSecond":400,"query":"SELECT * FROM c WHERE c.tenantId = @tenant AND c.userId = @user","parameters":{"@tenant":"/tenantId","@user":"/userId"}}"#
            }
            Self::Orders => {
                r#"{"operation":"batch","perSecond":200,"items":4,"together":["/orderId","/customerId"]},
                {"operation":"read","perSecond":300,"knows":["/customerId","/orderId"]},
                {"operation":"query","perSecond":500,"query":"SELECT * FROM c WHERE c.customerId = @customer","parameters":{"@customer":"/customerId"}},
                {"operation":"query","perSecond":200,"query":"SELECT * FROM c WHERE c.customerId = @customer AND c.orderId = @order","parameters":{"@customer":"/customerId","@order":"/orderId"}}"#
            }
            Self::Vehicles => {
                r#"{"operation":"create","perSecond":1000},
                {"operation":"query","perSecond":800,"query":"SELECT * FROM c WHERE c.date = @date AND c.VIN = @vin","parameters":{"@date":"/date","@vin":"/VIN"}},
                {"operation":"query","perSecond":2000,"query":"SELECT * FROM c WHERE c.date = @date AND c.kind = 'fault'","parameters":{"@date":"/date"}}"#
            }
        };
        let retention = match self {
            Self::Telemetry | Self::Vehicles => r#""retentionDays":20,"#,
            Self::Tenants | Self::Orders => "",
        };
        format!(r#"{{"throughput":{},{retention}"operations":[{operations}]}}"#, self.throughput())
    }

    /// Generates items as JSON. The same count and seed produce the same items.
    pub fn items(self, count: u64, seed: u64) -> Items {
        Items { set: self, number: 0, count, random: Random::new(seed), tenants: Zipf::new(300, 0.6) }
    }
}

/// Items of a data set.
#[derive(Clone, Debug)]
pub struct Items {
    set: DataSet,
    number: u64,
    count: u64,
    random: Random,
    tenants: Zipf,
}

impl Items {
    /// Writes the next item into `out`, which is cleared first; false at the end.
    pub fn write_next(&mut self, out: &mut String) -> bool {
        out.clear();
        if self.number >= self.count {
            return false;
        }
        let number = self.number;
        self.number += 1;
        let random = &mut self.random;
        // Thirty days, in order.
        let span_ms = i128::from(30 * DAY_MS);
        let at_ms = START_MS
            + i64::try_from(span_ms * i128::from(number) / i128::from(self.count.max(1))).unwrap_or(0);
        let day = moment::print_day(at_ms.div_euclid(DAY_MS));
        let written = match self.set {
            DataSet::Telemetry => {
                let device = random.below(2000);
                let (celsius, humidity) = (random.below(400), random.below(1000));
                write!(
                    out,
                    r#"{{"id":"r{number}","deviceId":"device-{device:05}","model":"m{}","site":"site-{}","day":"{day}","at":"{}","celsius":{}.{},"humidity":{}.{},"firmware":"2.{}.0"}}"#,
                    device % 5,
                    device % 40,
                    moment::print(at_ms),
                    celsius / 10,
                    celsius % 10,
                    humidity / 10,
                    humidity % 10,
                    device % 3,
                )
            }
            DataSet::Tenants => {
                // Three of ten requests belong to the largest tenant.
                let tenant = if random.below(10) < 3 { 0 } else { self.tenants.rank(random) + 1 };
                let user = random.below(if tenant == 0 { 5000 } else { 40 });
                write!(
                    out,
                    r#"{{"id":"i{number}","tenantId":"tenant-{tenant:03}","userId":"user-{user:05}","kind":"{}","at":"{}","title":"Task number {number} of the list","state":"{}","note":"{}"}}"#,
                    ["task", "note", "file"][random.index(3)],
                    moment::print(at_ms),
                    ["open", "done"][random.index(2)],
                    "lorem ipsum dolor sit amet ".repeat(6),
                )
            }
            DataSet::Orders => {
                // An order is followed by its three lines.
                let order = number / 4;
                let customer = crate::random::mix(order ^ 0x00C0_FFEE) % 5000;
                let kind = if number.is_multiple_of(4) { "order" } else { "line" };
                write!(
                    out,
                    r#"{{"id":"o{order}-{}","orderId":"order-{order:07}","customerId":"customer-{customer:05}","kind":"{kind}","date":"{day}","status":"{}","region":"{}","cents":{}}}"#,
                    number % 4,
                    ["new", "paid", "sent"][random.index(3)],
                    ["north", "south", "east", "west"][usize::try_from(customer % 4).unwrap_or(0)],
                    random.below(100_000),
                )
            }
            DataSet::Vehicles => {
                let vehicle = random.below(3000);
                write!(
                    out,
                    r#"{{"id":"e{number}","VIN":"1HGCM826{vehicle:09}","date":"{day}","at":"{}","kind":"{}","speed":{},"odometer":{}}}"#,
                    moment::print(at_ms),
                    // One fault in forty events.
                    ["fault", "start", "stop", "position"][random.index(40).min(3)],
                    random.below(200),
                    random.below(300_000),
                )
            }
        };
        written.expect("a String accepts every write");
        true
    }
}

impl Iterator for Items {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut out = String::with_capacity(256);
        self.write_next(&mut out).then_some(out)
    }
}
