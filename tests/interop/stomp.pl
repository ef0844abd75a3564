# Speaks STOMP with Perl's Net::Stomp: `perl stomp.pl HOST PORT NAME SCENARIO`.
# NAME begins the names of all destinations. Ends with 0 if all was as it should be.

use strict;
use warnings;
use Net::Stomp;

my ($host, $port, $name, $scenario) = @ARGV;

sub connected {
    my %headers = @_;
    my $stomp = Net::Stomp->new({ hostname => $host, port => $port, timeout => 30, reconnect_attempts => 1 });
    my $answer = $stomp->connect({ login => '', passcode => '', %headers });
    check($answer->command, 'CONNECTED');
    return $stomp;
}

sub check {
    my ($got, $expected) = @_;
    die "got '$got' where '$expected' was expected\n" unless $got eq $expected;
}

sub next_message {
    my ($stomp) = @_;
    my $frame = $stomp->receive_frame;
    die "nothing came\n" unless defined $frame;
    check($frame->command, 'MESSAGE');
    return $frame;
}

my %scenarios = (
    'messages' => sub {
        my $publisher = connected();    # of its own: send_with_receipt takes the next frame for the receipt
        my %first = (body => "one\0two", 'content-length' => 7, colour => 'red');
        check($publisher->send_with_receipt({ destination => "/queue/$name", %first }), 1);
        $publisher->send({ destination => "/queue/$name", body => 'second' });
        my $stomp = connected();
        $stomp->subscribe({ destination => "/queue/$name", ack => 'client', 'activemq.prefetchSize' => 1 });
        my $first = next_message($stomp);
        check($first->body, "one\0two");
        check($first->headers->{colour}, 'red');
        $stomp->ack({ frame => $first });
        my $second = next_message($stomp);
        check($second->body, 'second');
        $stomp->ack({ frame => $second, receipt => 'r' });
        check($stomp->receive_frame->command, 'RECEIPT');
        $_->disconnect for $stomp, $publisher;
    },
    'versions' => sub {
        for my $version ('1.1', '1.2') {
            my $stomp = connected('accept-version' => $version, host => '/', 'heart-beat' => '0,500');
            $stomp->subscribe({ destination => "/queue/$name", id => '1', ack => 'client-individual' });
            $stomp->send({ destination => "/queue/$name", body => $version });
            my $message = next_message($stomp);
            my %named = $version eq '1.2' ? (id => $message->headers->{ack}) : (subscription => '1');
            $stomp->nack({ frame => $message, %named });
            $message = next_message($stomp);
            check($message->headers->{'delivery-count'}, 2);
            %named = (id => $message->headers->{ack}) if $version eq '1.2';
            $stomp->ack({ frame => $message, %named, receipt => 'r' });
            check($stomp->receive_frame->command, 'RECEIPT');
            $stomp->disconnect;
        }
    },
    'transactions' => sub {
        my $stomp = connected();
        $stomp->subscribe({ destination => "/queue/$name", ack => 'auto' });
        check($stomp->send_transactional({ destination => "/queue/$name", body => 'whole' }), 1);
        check(next_message($stomp)->body, 'whole');
        $stomp->disconnect;
    },
    'durable topics' => sub {
        my %durable = (destination => "/topic/$name", 'activemq.subscriptionName' => 'mine', id => '1');
        my $first = connected('client-id' => $name);
        $first->subscribe({ %durable, receipt => 's' });
        check($first->receive_frame->command, 'RECEIPT');
        $first->disconnect;
        my $publisher = connected();
        check($publisher->send_with_receipt({ destination => "/topic/$name", body => 'missed' }), 1);
        $publisher->disconnect;
        my $again = connected('client-id' => $name);
        $again->subscribe({%durable});
        check(next_message($again)->body, 'missed');
        $again->unsubscribe({%durable});
        $again->disconnect;
    },
);

alarm 60;
$scenarios{$scenario}->();
