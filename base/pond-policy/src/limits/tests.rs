//! Units and bounds of each limit, as tables.

use super::*;

fn out_of_bounds(given: &str, least: &str, most: &str) -> LimitFault {
    LimitFault::OutOfBounds { given: format!("\"{given}\""), least: least.into(), most: most.into() }
}

#[test]
fn sizes_take_units() {
    for (text, bytes, printed) in [
        ("512m", 512 * MIB, "512m"),
        ("4g", 4 * GIB, "4g"),
        ("4G", 4 * GIB, "4g"),
        ("1t", TIB, "1t"),
        ("1024m", GIB, "1g"),
        ("1536m", 1536 * MIB, "1536m"),
        ("16777217", 16 * MIB + 1, "16777217"),
        ("16777217b", 16 * MIB + 1, "16777217"),
        ("16384K", 16 * MIB, "16m"),
        ("16777216", 16 * MIB, "16m"),
    ] {
        let memory = Memory::parse(text).unwrap();
        assert_eq!((memory.bytes(), memory.to_string().as_str()), (bytes, printed), "{text}");
        assert_eq!(Memory::parse(printed), Ok(memory));
    }
}

#[test]
fn what_is_not_a_size_is_refused() {
    for text in [
        "",
        " ",
        "4 g",
        " 4g",
        "4g ",
        "4gb",
        "4gib",
        "g",
        "-4g",
        "-1",
        "+4g",
        "0x10",
        "1e3",
        "1e9g",
        "4.5g",
        "1_000",
        "04g",
        "NaN",
        "nan",
        ".nan",
        "inf",
        "-inf",
        ".inf",
        "٤g",
        "4ｇ",
        "4\u{0}g",
        "4g\n",
        "4k4",
        "max",
        "unlimited",
    ] {
        assert_eq!(Memory::parse(text), Err(LimitFault::NotASize(quote(text))), "{text:?}");
    }
}

#[test]
fn sizes_are_bounded() {
    for text in
        ["0", "0g", "1", "15m", "16777215", "2t", "1025g", "99999999999999999999", "18446744073709551615t"]
    {
        assert_eq!(Memory::parse(text), Err(out_of_bounds(text, "16m", "1t")), "{text}");
    }
    assert_eq!(TmpfsSize::parse("65g"), Err(out_of_bounds("65g", "1m", "64g")));
    assert_eq!(TmpfsSize::parse("1023k"), Err(out_of_bounds("1023k", "1m", "64g")));
    assert_eq!(TmpfsSize::parse("64g"), Ok(TmpfsSize::MOST));
    assert_eq!(TmpfsSize::parse("1m"), Ok(TmpfsSize::LEAST));
}

#[test]
fn cpus_take_up_to_three_decimals() {
    for (text, millis, printed) in [
        ("2", 2000, "2"),
        ("2.0", 2000, "2"),
        ("0.5", 500, "0.5"),
        ("0.01", 10, "0.01"),
        ("1.250", 1250, "1.25"),
        ("0.125", 125, "0.125"),
        ("256", 256_000, "256"),
    ] {
        let cpus = Cpus::parse(text).unwrap();
        assert_eq!((cpus.millis(), cpus.to_string().as_str()), (millis, printed), "{text}");
        assert_eq!(Cpus::parse(printed), Ok(cpus));
    }
    for text in [
        "", ".5", "2.", "2.0000", "-1", "+1", "1,5", "1e1", "NaN", "inf", "-0.5", "two", "½", "1.2.3", "02",
        "2 ", "2c",
    ] {
        assert_eq!(Cpus::parse(text), Err(LimitFault::NotCpus(quote(text))), "{text:?}");
    }
    for text in ["0", "0.0", "0.009", "256.001", "257", "99999999999999999999"] {
        assert_eq!(Cpus::parse(text), Err(out_of_bounds(text, "0.01", "256")), "{text}");
    }
}

#[test]
fn pids_are_whole() {
    assert_eq!(Pids::parse("512").map(Pids::get), Ok(512));
    assert_eq!((Pids::parse("8"), Pids::parse("32768")), (Ok(Pids::LEAST), Ok(Pids::MOST)));
    for text in ["", "-1", "512.0", "5e2", "1k", "NaN", "08", "٨"] {
        assert_eq!(Pids::parse(text), Err(LimitFault::NotACount(quote(text))), "{text:?}");
    }
    for text in ["0", "7", "32769", "4294967808", "99999999999999999999"] {
        assert_eq!(Pids::parse(text), Err(out_of_bounds(text, "8", "32768")), "{text}");
    }
}
