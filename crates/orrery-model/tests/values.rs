//! JSON values print and read back as they were.

use orrery_model::value::{self, Number, Object, Value};
use proptest::prelude::*;

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has no NaN or infinity", |number| number.is_finite())
            .prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            proptest::collection::vec((any::<String>(), inner), 0..6).prop_map(|members| {
                let members = members.into_iter().map(|(name, value)| (name.into_boxed_str(), value));
                Value::Object(Object::from_members(members.collect()))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn values_round_trip(value in any_value()) {
        let text = value.to_json();
        let read = value::parse(text.as_bytes()).expect("what is printed is JSON");
        prop_assert_eq!(&read, &value);
        // Printing is stable, so property order survives too.
        prop_assert_eq!(read.to_json(), text);
    }

    #[test]
    fn doubles_keep_every_bit_but_the_sign_of_zero(bits: u64) {
        let double = f64::from_bits(bits);
        if double.is_finite() {
            let read = value::parse(Value::from(double).to_json().as_bytes()).expect("a number is JSON");
            let read = read.as_number().map(Number::as_f64).expect("a number reads as one");
            prop_assert_eq!(read.to_bits(), (double + 0.0).to_bits());
        }
    }

    #[test]
    fn any_text_is_parsed_or_rejected(text: String) {
        let _read_or_refused = value::parse(text.as_bytes());
    }
}
