#include "runtime/msg/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "runtime/actor/method.h"
#include "runtime/msg/codec.h"
#include "runtime/msg/error_chain.h"

namespace troupe::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Envelope GoodEnvelope() {
  Envelope envelope;
  envelope.sender_node = 1;
  envelope.receiver_node = 2;
  envelope.sequence = 7;
  return envelope;
}

absl::string_view Bytes(const Envelope& envelope) {
  return absl::string_view(reinterpret_cast<const char*>(&envelope), sizeof(envelope));
}

std::string ParseError(const Envelope& envelope) {
  return std::string(ParseEnvelope(Bytes(envelope), MessageLimits()).status().message());
}

TEST(EnvelopeTest, ComesBackAsItWasSent) {
  const Envelope envelope = GoodEnvelope();
  const auto parsed = ParseEnvelope(Bytes(envelope), MessageLimits());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(Bytes(*parsed), Bytes(envelope));
}

TEST(EnvelopeTest, ABrokenFieldIsNamed) {
  EXPECT_THAT(std::string(ParseEnvelope("short", MessageLimits()).status().message()), HasSubstr("5 bytes, not 96"));
  Envelope envelope = GoodEnvelope();
  envelope.magic = 1;
  EXPECT_THAT(ParseError(envelope), HasSubstr("magic"));
  envelope = GoodEnvelope();
  envelope.version = 9;
  EXPECT_THAT(ParseError(envelope), HasSubstr("version is 9"));
  envelope = GoodEnvelope();
  envelope.kind = static_cast<MessageKind>(99);
  EXPECT_THAT(ParseError(envelope), HasSubstr("kind 99"));
  envelope = GoodEnvelope();
  envelope.sender_node = -3;
  EXPECT_THAT(ParseError(envelope), HasSubstr("sender is -3"));
  envelope = GoodEnvelope();
  envelope.body_length = ~uint64_t{0};
  EXPECT_THAT(ParseError(envelope), HasSubstr("body of 18446744073709551615 bytes, limit"));
  envelope = GoodEnvelope();
  envelope.frame_count = ~uint32_t{0};
  EXPECT_THAT(ParseError(envelope), HasSubstr("4294967295 frames, limit"));
}

TEST(MessageTest, PartsMustAgreeWithTheEnvelope) {
  Envelope envelope = GoodEnvelope();
  envelope.body_length = 4;
  envelope.frame_count = 1;
  const Buffer head = Buffer::Copy(&envelope, sizeof(envelope));
  const Buffer body = Buffer::Copy("body", 4);
  const Buffer frame = Buffer::Copy("frame", 5);
  EXPECT_TRUE(ParseMessage({head, body, frame}, MessageLimits()).ok());
  EXPECT_THAT(std::string(ParseMessage({head}, MessageLimits()).status().message()), HasSubstr("1 parts"));
  EXPECT_THAT(std::string(ParseMessage({head, body}, MessageLimits()).status().message()),
              HasSubstr("says 1 frames, 0 came"));
  EXPECT_THAT(std::string(ParseMessage({head, frame, body}, MessageLimits()).status().message()),
              HasSubstr("body of 4 bytes, 5 came"));
  MessageLimits small;
  small.frame_bytes = 4;
  EXPECT_THAT(std::string(ParseMessage({head, body, frame}, small).status().message()), HasSubstr("more than 4 bytes"));
}

TEST(MessageTest, RandomBytesAreErrorsNeverCrashes) {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    Envelope envelope = GoodEnvelope();
    auto* bytes = reinterpret_cast<unsigned char*>(&envelope);
    for (int i = 0; i < 3; ++i) bytes[random() % sizeof(envelope)] = static_cast<unsigned char>(random());
    (void)ParseEnvelope(Bytes(envelope), MessageLimits());
  }
}

struct Nested {
  std::vector<Buffer> tensors;
  std::optional<double> weight;
  absl::Status status;
  absl::StatusOr<int> maybe = 0;
  absl::Duration time;
  MSGPACK_DEFINE(tensors, weight, status, maybe, time)
};

TEST(CodecTest, ValuesComeBack) {
  Nested value;
  value.tensors = {Buffer::Copy("abc", 3), Buffer()};
  value.weight = 0.5;
  value.status = absl::NotFoundError("gone");
  value.maybe = 7;
  value.time = absl::Milliseconds(1500);
  const Payload payload = EncodeValue(value);
  ASSERT_EQ(payload.frames.size(), 2);
  EXPECT_EQ(payload.frames[0].data(), value.tensors[0].data()) << "a tensor is passed on, not copied";
  const auto back = DecodeValue<Nested>(payload);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->tensors[0].data(), value.tensors[0].data());
  EXPECT_TRUE(back->tensors[1].empty());
  EXPECT_EQ(back->weight, 0.5);
  EXPECT_EQ(back->status, value.status);
  EXPECT_EQ(*back->maybe, 7);
  EXPECT_EQ(back->time, absl::Milliseconds(1500));
  EXPECT_TRUE(DecodeValue<std::monostate>(EncodeValue(std::monostate())).ok());
}

TEST(CodecTest, AWrongTypeIsAnErrorThatNamesTheValue) {
  const auto wrong = DecodeValue<std::vector<int>>(EncodeValue(std::string("text")), nullptr, "trainer.Step");
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(wrong.status().message()), HasSubstr("trainer.Step"));
  EXPECT_FALSE(DecodeValue<int8_t>(EncodeValue(1000)).ok());
}

TEST(CodecTest, AFrameThatDidNotComeIsNamed) {
  Payload payload = EncodeValue(std::vector<Buffer>{Buffer::Copy("a", 1), Buffer::Copy("b", 1)});
  payload.frames.pop_back();
  const auto broken = DecodeValue<std::vector<Buffer>>(payload);
  EXPECT_THAT(std::string(broken.status().message()), HasSubstr("frame 1 is named, 1 came"));
}

TEST(CodecTest, BrokenBodiesAreErrorsNeverCrashesNorFloodsOfMemory) {
  const std::string good = EncodeValue(std::vector<std::vector<int>>{{1, 2}, {3}}).body;
  std::mt19937 random(2);
  for (int round = 0; round < 50000; ++round) {
    std::string bad = good;
    for (int i = 0; i < 2; ++i) bad[random() % bad.size()] = static_cast<char>(random());
    if (round % 3 == 0) bad.resize(random() % bad.size());
    (void)DecodeValue<std::vector<std::vector<int>>>(bad, DecodeContext{});
  }
  // An array that says it has 2^32 - 1 elements, in 5 bytes; and one nested 100,000 deep.
  EXPECT_FALSE(DecodeValue<std::vector<int>>(std::string("\xdd\xff\xff\xff\xff", 5), DecodeContext{}).ok());
  EXPECT_FALSE(DecodeValue<std::vector<int>>(std::string(100000, '\x91'), DecodeContext{}).ok());
  EXPECT_FALSE(DecodeValue<int>(std::string("\x01\x02", 2), DecodeContext{}).ok()) << "bytes are left over";
}

TEST(CodecTest, ArgumentsTravelAsTheParametersTypes) {
  EncodeContext context;
  const std::string body = EncodeArguments(std::type_identity<std::tuple<double, std::string, std::vector<int>>>(),
                                           &context, 2, "text", std::vector<int>{1});
  const auto back = DecodeArguments<std::tuple<double, std::string, std::vector<int>>>(body, DecodeContext{});
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(std::get<0>(*back), 2.0);
  EXPECT_EQ(std::get<1>(*back), "text");
  EXPECT_THAT(std::get<2>(*back), ElementsAre(1));
  const auto wrong = DecodeArguments<std::tuple<double, std::vector<int>, std::vector<int>>>(body, DecodeContext{});
  EXPECT_THAT(std::string(wrong.status().message()), HasSubstr("argument 1"));
  EXPECT_THAT(std::string(DecodeArguments<std::tuple<double>>(body, DecodeContext{}).status().message()),
              HasSubstr("not 1 arguments"));
}

TEST(ErrorChainTest, SurvivesTheWire) {
  absl::Status status = AddOrigin(absl::NotFoundError("no file"), {"sampler[1]", 1, "h1", "Load", ""});
  status = AddOrigin(status, {"trainer[0]", 0, "h0", "Sync", ""});
  absl::Status back;
  ASSERT_TRUE(DecodeStatus(EncodeStatus(status), &back).ok());
  EXPECT_EQ(back, status);
  EXPECT_EQ(back.message(), "trainer[0] (rank 0, host h0): Sync: sampler[1] (rank 1, host h1): Load: no file");
  const auto chain = ErrorChain(back);
  ASSERT_EQ(chain.size(), 2);
  EXPECT_EQ(chain[0].message, "no file");
  EXPECT_EQ(chain[1].method, "Sync");
  EXPECT_FALSE(DecodeStatus("garbage", &back).ok());
  EXPECT_TRUE(ErrorChain(absl::OkStatus()).empty());
}

}  // namespace
}  // namespace troupe::runtime
