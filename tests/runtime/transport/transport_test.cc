#include "runtime/transport/transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zmq.h>

#include <condition_variable>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/transport/in_process_transport.h"
#include "runtime/transport/zmq_transport.h"

namespace troupe::runtime {
namespace {

enum class Kind { kInProcess, kIpc, kTcp };

/// Collects what comes.
class Inbox {
 public:
  Transport::Handler handler() {
    return [this](Message message) {
      const std::lock_guard<std::mutex> lock(mutex_);
      messages_.push_back(std::move(message));
      changed_.notify_all();
    };
  }
  std::vector<Message> Take(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::minutes(2), [&] { return messages_.size() >= count; }));
    return std::move(messages_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Message> messages_;
};

Message MakeMessage(int to, uint64_t sequence) {
  Message message;
  message.envelope.sender_node = 0;
  message.envelope.sender_incarnation = 1;
  message.envelope.receiver_node = to;
  message.envelope.sequence = sequence;
  message.body = absl::StrCat("body ", sequence);
  return message;
}

class TransportTest : public ::testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<Transport> Make(int node) {
    if (GetParam() == Kind::kInProcess) return std::make_unique<InProcessTransport>(hub_, node);
    ZmqTransportOptions options;
    static int unique = 0;
    options.endpoint = GetParam() == Kind::kTcp
                           ? "tcp://127.0.0.1:*"
                           : absl::StrCat("ipc://@troupe-transport-test-", getpid(), "-", ++unique);
    options.node = node;
    options.incarnation = 1;
    auto made = ZmqTransport::Create(options);
    TROUPE_CHECK(made.ok()) << made.status();
    return *std::move(made);
  }
  NodeAddress AddressOf(const Transport& transport, int node) {
    NodeAddress address;
    address.id = node;
    address.incarnation = 1;
    address.endpoint = transport.endpoint();
    return address;
  }

  std::shared_ptr<InProcessHub> hub_ = std::make_shared<InProcessHub>();
};
INSTANTIATE_TEST_SUITE_P(Kinds, TransportTest, ::testing::Values(Kind::kInProcess, Kind::kIpc, Kind::kTcp),
                         [](const auto& param) {
                           return param.param == Kind::kInProcess ? "InProcess"
                                  : param.param == Kind::kIpc     ? "Ipc"
                                                                  : "Tcp";
                         });

TEST_P(TransportTest, MessagesArriveWholeAndInOrder) {
  Inbox inbox;
  Inbox unused;
  const auto sender = Make(0);
  const auto receiver = Make(1);
  sender->Start(unused.handler());
  receiver->Start(inbox.handler());
  const NodeAddress to = AddressOf(*receiver, 1);
  constexpr uint64_t kCount = 5000;
  for (uint64_t i = 0; i < kCount; ++i) ASSERT_TRUE(sender->Send(to, MakeMessage(1, i)).ok());
  const auto messages = inbox.Take(kCount);
  ASSERT_EQ(messages.size(), kCount);
  for (uint64_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(messages[i].envelope.sequence, i);
    EXPECT_EQ(messages[i].body, absl::StrCat("body ", i));
  }
  sender->Close();
  receiver->Close();
}

TEST_P(TransportTest, FramesArriveAlignedAndUnchanged) {
  Inbox inbox;
  Inbox unused;
  const auto sender = Make(0);
  const auto receiver = Make(1);
  sender->Start(unused.handler());
  receiver->Start(inbox.handler());
  const std::vector<size_t> sizes{0, 1, 7, 4095, 4096, 100000, size_t{3} << 20};
  Message message = MakeMessage(1, 0);
  message.body = std::string(100000, 'b');
  std::vector<std::string> contents;
  for (const size_t size : sizes) {
    contents.push_back(std::string(size, static_cast<char>('a' + contents.size())));
    message.frames.push_back(Buffer::Copy(contents.back().data(), size));
  }
  ASSERT_TRUE(sender->Send(AddressOf(*receiver, 1), std::move(message)).ok());
  const auto messages = inbox.Take(1);
  ASSERT_EQ(messages[0].frames.size(), sizes.size());
  EXPECT_EQ(messages[0].body, std::string(100000, 'b'));
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Buffer& frame = messages[0].frames[i];
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(frame.data()), frame.size()), contents[i]);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(frame.data()) % 64, 0);
  }
  sender->Close();
  receiver->Close();
}

TEST_P(TransportTest, ABufferIsFreedWhenTheLastHolderLetsGo) {
  Inbox inbox;
  Inbox unused;
  const auto sender = Make(0);
  const auto receiver = Make(1);
  sender->Start(unused.handler());
  receiver->Start(inbox.handler());
  auto bytes = std::make_shared<std::vector<char>>(100000, 'x');
  const std::weak_ptr<std::vector<char>> watch = bytes;
  Message message = MakeMessage(1, 0);
  const void* data = bytes->data();
  message.frames.push_back(Buffer::Wrap(std::move(bytes), data, 100000));
  ASSERT_TRUE(sender->Send(AddressOf(*receiver, 1), std::move(message)).ok());
  inbox.Take(1);
  sender->Close();
  receiver->Close();
  EXPECT_TRUE(watch.expired());
}

TEST_P(TransportTest, SendingAfterCloseIsAnError) {
  Inbox unused;
  const auto sender = Make(0);
  const auto receiver = Make(1);
  sender->Start(unused.handler());
  receiver->Start(unused.handler());
  receiver->Close();
  sender->Close();
  EXPECT_EQ(sender->Send(AddressOf(*receiver, 1), MakeMessage(1, 0)).code(), absl::StatusCode::kUnavailable);
}

TEST(ZmqTransportTest, TooMuchForAPeerThatDoesNotListenIsAnError) {
  ZmqTransportOptions options;
  options.endpoint = absl::StrCat("ipc://@troupe-transport-full-", getpid());
  options.node = 0;
  options.incarnation = 1;
  options.max_waiting_messages = 10;
  options.linger = absl::ZeroDuration();
  const auto sender = ZmqTransport::Create(options);
  ASSERT_TRUE(sender.ok());
  NodeAddress nobody;
  nobody.id = 1;
  nobody.incarnation = 1;
  nobody.endpoint = absl::StrCat("ipc://@troupe-transport-nobody-", getpid());
  absl::Status status;
  // The socket takes its high-water mark, and we the rest.
  for (uint64_t i = 0; status.ok() && i < 1000000; ++i) status = (*sender)->Send(nobody, MakeMessage(1, i));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  (*sender)->Disconnect(nobody);
}

TEST(ZmqTransportTest, NoSocketFileIsLeftAndTheNameIsFreeAgain) {
  ZmqTransportOptions options;
  options.endpoint = absl::StrCat("ipc://@troupe-transport-free-", getpid());
  options.node = 0;
  for (int round = 0; round < 3; ++round) {
    const auto first = ZmqTransport::Create(options);
    ASSERT_TRUE(first.ok()) << first.status();
    const auto second = ZmqTransport::Create(options);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_FALSE(std::ifstream(absl::StrCat("troupe-transport-free-", getpid())).good());
}

/// A peer that speaks ZeroMQ, but not our messages.
class RawPeer {
 public:
  RawPeer(const std::string& endpoint, const std::string& id)
      : context_(zmq_ctx_new()), socket_(zmq_socket(context_, ZMQ_DEALER)) {
    zmq_setsockopt(socket_, ZMQ_ROUTING_ID, id.data(), id.size());
    EXPECT_EQ(zmq_connect(socket_, endpoint.c_str()), 0);
  }
  ~RawPeer() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  void Send(const std::vector<std::string>& parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_GE(zmq_send(socket_, parts[i].data(), parts[i].size(), i + 1 < parts.size() ? ZMQ_SNDMORE : 0), 0);
    }
  }

 private:
  void* context_;
  void* socket_;
};

TEST(ZmqTransportTest, BrokenAndForgedMessagesAreRefusedAndTheNextOneArrives) {
  ZmqTransportOptions options;
  options.endpoint = absl::StrCat("ipc://@troupe-transport-broken-", getpid());
  options.node = 1;
  options.incarnation = 1;
  options.limits.frames = 4;
  const auto receiver = ZmqTransport::Create(options);
  ASSERT_TRUE(receiver.ok());
  Inbox inbox;
  (*receiver)->Start(inbox.handler());
  RawPeer peer(options.endpoint, "n0:1");
  Message good = MakeMessage(1, 77);
  good.envelope.body_length = good.body.size();
  const auto bytes = [](const Envelope& envelope) {
    return std::string(reinterpret_cast<const char*>(&envelope), sizeof(envelope));
  };
  peer.Send({"garbage"});
  peer.Send({"garbage", "more", "and more"});
  peer.Send({bytes(good.envelope)});
  peer.Send({bytes(good.envelope), "too short"});
  peer.Send({bytes(good.envelope), good.body, "a frame too many"});
  Envelope many = good.envelope;
  many.frame_count = 1000000;
  peer.Send({bytes(many), good.body});
  Envelope forged = good.envelope;
  forged.sender_node = 5;
  peer.Send({bytes(forged), good.body});
  peer.Send({bytes(good.envelope), good.body});
  const auto messages = inbox.Take(1);
  ASSERT_EQ(messages.size(), 1);
  EXPECT_EQ(messages[0].envelope.sequence, 77);
}

}  // namespace
}  // namespace troupe::runtime
