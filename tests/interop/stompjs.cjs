// Speaks STOMP over a WebSocket with @stomp/stompjs: `node stompjs.cjs ws://HOST:PORT/stomp NAME SCENARIO`.
// NAME begins the names of all destinations. Ends with 0 if all was as it should be.

const assert = require("node:assert/strict");
const { Client, Versions } = require("@stomp/stompjs");
const { WebSocket } = require("ws");

global.WebSocket = WebSocket;
const [url, name, scenario] = process.argv.slice(2);

// A client that collects what comes, so that a scenario reads from top to bottom.
class Program {
  constructor(options = {}) {
    this.waiting = [];
    this.arrived = [];
    this.client = new Client({
      brokerURL: url,
      reconnectDelay: 0,
      onStompError: (frame) => this.arrive(frame),
      onUnhandledMessage: (message) => this.arrive(message),
      ...options,
    });
  }

  connect() {
    return new Promise((resolve) => {
      this.client.onConnect = resolve;
      this.client.activate();
    });
  }

  arrive(message) {
    const waits = this.waiting.shift();
    if (waits) waits(message);
    else this.arrived.push(message);
  }

  next() {
    if (this.arrived.length) return Promise.resolve(this.arrived.shift());
    return new Promise((resolve) => this.waiting.push(resolve));
  }

  subscribe(destination, headers) {
    return this.client.subscribe(destination, (message) => this.arrive(message), headers);
  }

  // Publish, and wait for the receipt.
  confirmed(message) {
    return new Promise((resolve) => {
      const receipt = `r${Math.random()}`;
      this.client.watchForReceipt(receipt, resolve);
      this.client.publish({ ...message, headers: { ...message.headers, receipt } });
    });
  }
}

async function goesThrough(version) {
  const program = new Program({ stompVersions: new Versions([version]) });
  await program.connect();
  assert.equal(program.client.connectedVersion, version);
  program.subscribe(`/queue/${name}`, { ack: "client-individual", id: "1" });
  await program.confirmed({ destination: `/queue/${name}`, body: "grüße", headers: { colour: "red" } });
  const message = await program.next();
  assert.equal(message.body, "grüße");
  assert.equal(message.headers.colour, "red");
  assert.equal("ack" in message.headers, version === "1.2");
  message.ack();
  await program.client.deactivate();

  const again = new Program();
  await again.connect();
  again.subscribe(`/queue/${name}`, { ack: "auto" });
  await again.confirmed({ destination: `/queue/${name}`, body: "last" });
  assert.equal((await again.next()).body, "last");
  await again.client.deactivate();
}

const scenarios = {
  "version-1.0": () => goesThrough("1.0"),
  "version-1.1": () => goesThrough("1.1"),
  "version-1.2": () => goesThrough("1.2"),

  async bodies() {
    const program = new Program({ splitLargeFrames: true });
    await program.connect();
    program.subscribe(`/queue/${name}`, { ack: "auto" });
    const large = "ü".repeat(100_000);
    const binary = new Uint8Array(70_000).map((_, index) => index % 256);
    program.client.publish({ destination: `/queue/${name}`, body: large, headers: { odd: "a:b\\ d\ne" } });
    program.client.publish({ destination: `/queue/${name}`, binaryBody: binary });
    const text = await program.next();
    assert.equal(text.body, large);
    assert.equal(text.headers.odd, "a:b\\ d\ne");
    assert.deepEqual(new Uint8Array((await program.next()).binaryBody), binary);
    await program.client.deactivate();
  },

  async transactions() {
    const program = new Program();
    await program.connect();
    program.subscribe(`/queue/${name}.in`, { ack: "client" });
    program.subscribe(`/queue/${name}.out`, { ack: "auto" });
    program.client.publish({ destination: `/queue/${name}.in`, body: "work" });
    const work = await program.next();
    for (const end of ["abort", "commit"]) {
      const transaction = program.client.begin();
      program.client.publish({
        destination: `/queue/${name}.out`,
        body: end,
        headers: { transaction: transaction.id },
      });
      work.ack({ transaction: transaction.id });
      transaction[end]();
    }
    assert.equal((await program.next()).body, "commit");
    await program.client.deactivate();
  },

  async refusals() {
    const program = new Program();
    await program.connect();
    program.subscribe(`/queue/${name}`, { ack: "client-individual" });
    program.subscribe(`/queue/DLQ.${name}`, { ack: "auto" });
    program.client.publish({ destination: `/queue/${name}`, body: "bad" });
    (await program.next()).nack();
    const again = await program.next();
    assert.equal(again.headers.redelivered, "true");
    again.nack({ requeue: "false" });
    assert.equal((await program.next()).headers["original-queue"], name);
    await program.client.deactivate();
  },

  async "request and reply"() {
    const asker = new Program();
    const answerer = new Program();
    await Promise.all([asker.connect(), answerer.connect()]);
    answerer.subscribe(`/queue/${name}`, { ack: "auto" });
    asker.client.publish({ destination: `/queue/${name}`, body: "?", headers: { "reply-to": "/temp-queue/answers" } });
    const question = await answerer.next();
    answerer.client.publish({ destination: question.headers["reply-to"], body: "!" });
    assert.equal((await asker.next()).body, "!"); // nobody subscribed to it: onUnhandledMessage
    await Promise.all([asker.client.deactivate(), answerer.client.deactivate()]);
  },

  async "durable topics"() {
    const durable = { id: "mine", durable: "true", "auto-delete": "false", ack: "auto" };
    const first = new Program();
    await first.connect();
    await new Promise((resolve) => {
      first.client.watchForReceipt("subscribed", resolve);
      first.subscribe(`/topic/${name}.*`, { ...durable, receipt: "subscribed" });
    });
    first.client.publish({ destination: `/topic/${name}.a`, body: "there" });
    assert.equal((await first.next()).body, "there");
    await first.client.deactivate({ force: true });

    const publisher = new Program();
    await publisher.connect();
    await publisher.confirmed({ destination: `/topic/${name}.b`, body: "missed" });
    await publisher.client.deactivate();

    const again = new Program();
    await again.connect();
    const subscription = again.subscribe(`/topic/${name}.*`, durable);
    assert.equal((await again.next()).body, "missed");
    subscription.unsubscribe({ durable: "true", "auto-delete": "false" });
    await again.client.deactivate();
  },

  // Tells on standard output when it has subscribed and what it gets, until it gets "last".
  async restarts() {
    const program = new Program({ reconnectDelay: 100 });
    program.client.onConnect = () => {
      program.client.watchForReceipt("subscribed", () => console.log("subscribed"));
      const durable = { id: "mine", durable: "true", "auto-delete": "false" };
      program.subscribe(`/topic/${name}`, { ...durable, ack: "client-individual", receipt: "subscribed" });
    };
    program.client.activate();
    for (let body = ""; body !== "last"; ) {
      const message = await program.next();
      body = message.body;
      console.log(body);
      message.ack();
    }
    await program.client.deactivate();
  },

  async errors() {
    const program = new Program();
    await program.connect();
    program.client.publish({ destination: "/nowhere/a", body: "x", headers: { receipt: "r" } });
    const error = await program.next();
    assert.equal(error.command, "ERROR");
    assert.equal(error.headers["receipt-id"], "r");
    await program.client.deactivate();
  },

  async "heart-beats"() {
    const program = new Program({ heartbeatIncoming: 1000, heartbeatOutgoing: 1000 });
    await program.connect();
    program.subscribe(`/queue/${name}`, { ack: "auto" });
    const end = Date.now() + 3000;
    for (let number = 0; Date.now() < end; number += 1) {
      await program.confirmed({ destination: `/queue/${name}`, body: `${number}` });
      assert.equal((await program.next()).body, `${number}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    assert.ok(program.client.connected);
    await program.client.deactivate();
  },
};

scenarios[scenario]().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
