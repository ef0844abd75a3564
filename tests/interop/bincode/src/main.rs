//! What the real bincode makes of the native protocol, for the tests of Penstock's own encoder and decoder.
//!
//!     penstock-bincode golden    prints the name and the bytes of each value of golden.rs
//!     penstock-bincode echo      reads `request HEX` or `answer HEX` on each line, and prints the bytes of what it has read

mod golden;
mod schema;

use schema::{Answer, Request};
use serde::{de::DeserializeOwned, Serialize};
use std::fmt::Write;
use std::io::BufRead;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("golden") => golden::print(),
        Some("echo") => echo(),
        _ => panic!("say golden or echo"),
    }
}

pub fn hex<T: Serialize>(value: &T) -> String {
    let bytes = bincode::serialize(value).expect("every value can be written");
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{:02x}", byte).expect("a text takes what is written");
        text
    })
}

fn echo() {
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("the lines are text");
        let (kind, digits) = line.split_once(' ').expect("a line is a kind and bytes");
        let bytes: Vec<u8> = (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("the bytes are in hexadecimal"))
            .collect();
        println!("{}", if kind == "request" { again::<Request>(&bytes) } else { again::<Answer>(&bytes) });
    }
}

fn again<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> String {
    match bincode::deserialize::<T>(bytes) {
        Ok(value) => hex(&value),
        Err(_) => "refused".to_string(),
    }
}
