use serde_derive::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Serialize, Deserialize, Debug, PartialEq)]
pub enum Request {
    Create {
        queue: Option<String>, label: Option<u64>, tags: Vec<String>, topic: Option<String>,
        settings: BTreeMap<String, Value>, exclusive: bool,
    },
    Alter {
        queue: Option<String>, label: Option<u64>, tags: Vec<String>, topic: Option<String>,
        settings: BTreeMap<String, Value>,
    },
    Delete { queue: Option<String>, label: Option<u64>, tags: Vec<String>, topic: Option<String> },
    Purge { queue: String, label: Option<u64>, tags: Vec<String> },
    Post {
        queue: Option<String>, message: Vec<u8>, priority: u32, label: Option<u64>, notify: Vec<Stage>,
        tags: Vec<String>, topic: Option<String>, headers: BTreeMap<String, String>, delay: f64,
        ttl: Option<f64>, key: Option<String>, group: Option<String>, dedup_id: Option<String>,
    },
    Pop {
        queue: String, timeout: f64, label: Option<u64>, tags: Option<Vec<String>>, r#match: Match,
        selector: Option<String>,
    },
    Fetch {
        queue: String, block_timeout: f64, work_timeout: Option<f64>, sync: Level, label: Option<u64>,
        tags: Option<Vec<String>>, r#match: Match, selector: Option<String>,
    },
    Finish { queue: Option<String>, sequence: u64, shard: u32, label: Option<u64>, response: Option<Level> },
    Fail { queue: Option<String>, sequence: u64, shard: u32, label: Option<u64>, reason: String },
    Release { queue: Option<String>, sequence: u64, shard: u32, label: Option<u64> },
    Reject { queue: Option<String>, sequence: u64, shard: u32, label: Option<u64>, reason: String },
    Keepalive { queue: Option<String>, sequence: Option<u64>, shard: u32, label: Option<u64> },
    Subscribe {
        queue: Option<String>, label: Option<u64>, tags: Option<Vec<String>>, r#match: Match,
        selector: Option<String>, topic: Option<String>, durable: Option<String>, from_seq: Option<u64>,
        credit: u32, work_timeout: Option<f64>, sync: Level,
    },
    Unsubscribe {
        subscription: Option<u64>, label: Option<u64>, topic: Option<String>, durable: Option<String>,
    },
    Batch { requests: Vec<Request>, label: Option<u64> },
    Status { queue: Option<String>, label: Option<u64>, tags: Vec<String>, topic: Option<String> },
    Ping { label: Option<u64> },
    Login { user: String, secret: String, label: Option<u64> },
    Resume { id: Option<String>, resume_timeout: Option<f64>, label: Option<u64> },
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
pub enum Answer {
    Hello { id: String, label: Option<u64> },
    Notice { label: Option<u64>, notice: Stage, late: bool },
    Message {
        label: Option<u64>, shard: u32, sequence: u64, body: Vec<u8>, finished: bool, queue: Option<String>,
        tags: Vec<String>, topic: Option<String>, id: u32, attempt: u32, priority: u32,
        headers: BTreeMap<String, String>, redelivered: bool, published_at: f64,
    },
    Nomessage { label: Option<u64> },
    Error { label: Option<u64>, code: String, key: Option<String>, text: String },
    Ok { label: Option<u64>, late: bool, shard: u32, sequence: Option<u64>, count: Option<u64> },
    Status { label: Option<u64>, status: BTreeMap<String, Value> },
    Pong { label: Option<u64> },
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
pub enum Value {
    Null, Bool(bool), Integer(i64), Number(f64), Text(String), List(Vec<Value>), Map(BTreeMap<String, Value>),
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
pub enum Level {
    Ready, Write, Sync,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
pub enum Stage {
    Ready, Write, Sync, Assign, Finish, Retry, Drop,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
pub enum Match {
    Exact, Strict, Combined, Any,
}
