# Speaks STOMP with Ruby's gem: `ruby stomp.rb HOST PORT NAME SCENARIO`.
# NAME begins the names of all destinations. Ends with 0 if all was as it should be.

require "stomp"
require "timeout"

HOST, PORT, NAME, SCENARIO = ARGV

def connect(version, headers: {}, **options)
  headers = { "accept-version" => version, "host" => "/" }.merge(headers) unless version == "1.0"
  Stomp::Connection.new(
    hosts: [{ login: "", passcode: "", host: HOST, port: PORT.to_i }], reliable: false, connect_headers: headers,
    **options
  )
end

def check(got, expected)
  raise "got #{got.inspect} where #{expected.inspect} was expected" unless got == expected
end

# Return the next message, and the next receipt in passing.
def next_message(connection)
  loop do
    frame = connection.receive
    raise "the connection was closed" if frame.nil?
    return frame if frame.command == "MESSAGE"
    raise frame.to_s if frame.command == "ERROR"
  end
end

def acknowledge(connection, message, verb = :ack, headers = {})
  case connection.protocol
  when "1.2" then connection.send(verb, message.headers["ack"], headers)
  when "1.1" then connection.send(verb, message.headers["message-id"], headers.merge(subscription: "1"))
  else connection.send(verb, message.headers["message-id"], headers)
  end
end

def goes_through(version, **options)
  queue = "/queue/#{NAME}"
  connection = connect(version, **options)
  check(connection.protocol, version)
  connection.subscribe(queue, { ack: "client-individual", id: "1" })
  connection.publish(queue, "grüße", { receipt: "r", colour: "red" })
  message = next_message(connection)
  check(message.body.dup.force_encoding("UTF-8"), "grüße")
  check(message.headers["colour"], "red")
  acknowledge(connection, message)
  connection.disconnect({ receipt: "bye" })

  again = connect(version, **options)
  again.subscribe(queue, { ack: "auto", id: "1" })
  again.publish(queue, "last")
  check(next_message(again).body, "last")
  again.disconnect
end

def escapes
  odd = { "a:b" => "1\n2\\3:4" }
  connection = connect("1.2")
  connection.subscribe("/topic/#{NAME}", { id: "1" })
  connection.publish("/topic/#{NAME}", "x", odd)
  check(next_message(connection).headers["a:b"], "1\n2\\3:4")
  connection.disconnect
end

def transactions
  connection = connect("1.1")
  connection.subscribe("/queue/#{NAME}.in", { ack: "client", id: "1" })
  connection.subscribe("/queue/#{NAME}.out", { ack: "auto", id: "2" })
  connection.publish("/queue/#{NAME}.in", "work")
  work = next_message(connection)
  [:abort, :commit].each do |ending|
    connection.begin("t")
    connection.publish("/queue/#{NAME}.out", ending.to_s, { transaction: "t" })
    acknowledge(connection, work, :ack, { transaction: "t" })
    connection.send(ending, "t")
  end
  check(next_message(connection).body, "commit")
  connection.disconnect({ receipt: "bye" })
end

def refusals
  connection = connect("1.2")
  connection.subscribe("/queue/#{NAME}", { ack: "client-individual", id: "1" })
  connection.subscribe("/queue/DLQ.#{NAME}", { ack: "auto", id: "2" })
  connection.publish("/queue/#{NAME}", "bad")
  acknowledge(connection, next_message(connection), :nack)
  again = next_message(connection)
  check(again.headers["delivery-count"], "2")
  acknowledge(connection, again, :nack, { requeue: "false" })
  check(next_message(connection).headers["original-queue"], NAME)
  connection.disconnect
end

def durable
  first = connect("1.1", headers: { "client-id" => NAME })
  first.subscribe("/topic/#{NAME}", { id: "mine", "durable-subscription-name" => "n", receipt: "s" })
  check(first.receive.command, "RECEIPT")
  first.disconnect({ receipt: "bye" })
  publisher = connect("1.1")
  publisher.publish("/topic/#{NAME}", "missed", { receipt: "r" })
  check(publisher.receive.command, "RECEIPT")
  publisher.disconnect
  again = connect("1.1", headers: { "client-id" => NAME })
  again.subscribe("/topic/#{NAME}", { id: "mine", "durable-subscription-name" => "n" })
  check(next_message(again).body, "missed")
  again.unsubscribe("/topic/#{NAME}", { id: "mine", "durable-subscription-name" => "n" })
  again.disconnect({ receipt: "bye" })
end

# Tells on standard output when it has subscribed and what it gets, until it gets "last".
def restarts
  client = Stomp::Connection.new(
    hosts: [{ login: "", passcode: "", host: HOST, port: PORT.to_i }], reliable: true, initial_reconnect_delay: 0.1,
    max_reconnect_delay: 0.2, connect_headers: { "accept-version" => "1.2", "host" => "/", "client-id" => NAME },
    logger: Stomp::NullLogger.new
  )
  durable = { id: "mine", "durable-subscription-name" => "n", ack: "client-individual", receipt: "subscribed" }
  client.subscribe("/topic/#{NAME}", durable)
  loop do
    frame = client.receive
    puts frame.command == "RECEIPT" ? frame.headers["receipt-id"] : frame.body
    $stdout.flush
    acknowledge(client, frame) if frame.command == "MESSAGE"
    break if frame.body == "last"
  end
  client.disconnect({ receipt: "bye" })
end

def heart_beats
  connection = connect("1.2", headers: { "heart-beat" => "1000,1000" }, max_hbread_fails: 1, fast_hbs_adjust: 0.1)
  connection.subscribe("/queue/#{NAME}", { id: "1" })
  sleep 3
  connection.publish("/queue/#{NAME}", "still here")
  check(next_message(connection).body, "still here")
  raise "no heart-beats came" unless connection.hbrecv_count > 1
  connection.disconnect
end

SCENARIOS = {
  "version-1.0" => -> { goes_through("1.0") },
  "version-1.1" => -> { goes_through("1.1") },
  "version-1.2" => -> { goes_through("1.2") },
  "lines that end by CRLF" => -> { goes_through("1.2", usecrlf: true) },
  "escapes" => -> { escapes },
  "transactions" => -> { transactions },
  "refusals" => -> { refusals },
  "durable topics" => -> { durable },
  "restarts" => -> { restarts },
  "heart-beats" => -> { heart_beats },
}.freeze

Timeout.timeout(30) { SCENARIOS.fetch(SCENARIO).call }
