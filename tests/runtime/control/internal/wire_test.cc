#include "runtime/control/internal/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::runtime::internal {
namespace {

using ::testing::HasSubstr;

TEST(WireTest, MessagesComeBackAsTheyWere) {
  control::Message message;
  message.set_job_epoch(0xfedcba9876543210);
  message.set_request(12);
  message.mutable_log_lines()->set_rank(3);
  message.mutable_log_lines()->add_lines("\xff not UTF-8");
  const auto parsed = ParseControl(EncodeControl(message));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(EncodeControl(*parsed), EncodeControl(message));
}

TEST(WireTest, BrokenBytesAreRefused) {
  for (const std::string bytes : {"hello", "\x52\xff", "\x08", "\xff\xff\xff\xff"}) {
    EXPECT_EQ(ParseControl(bytes).status().code(), absl::StatusCode::kInvalidArgument) << bytes;
  }
}

TEST(WireTest, EmptyAndUnknownMessagesAreRefused) {
  EXPECT_THAT(std::string(ParseControl("").status().message()), HasSubstr("no known kind"));
}

TEST(WireTest, TooLongIsRefusedWithBothSizes) {
  const std::string bytes(kMaxControlBytes + 1, '\0');
  EXPECT_THAT(std::string(ParseControl(bytes).status().message()), HasSubstr("1048577 bytes, at most 1048576"));
}

TEST(WireTest, TextsAndNumbersOutOfBoundsAreRefused) {
  control::Message message;
  message.mutable_register_name()->set_name(std::string(kMaxControlText + 1, 'x'));
  EXPECT_FALSE(ParseControl(EncodeControl(message)).ok());
  message.mutable_register_name()->set_name("x");
  message.mutable_register_name()->set_node(-1);
  EXPECT_THAT(std::string(ParseControl(EncodeControl(message)).status().message()), HasSubstr("node -1 is not between"));
  message.mutable_submit_job();
  EXPECT_FALSE(ParseControl(EncodeControl(message)).ok()) << "no command, no workers";
}

TEST(WireTest, StatusesAndNodesComeBack) {
  EXPECT_EQ(FromControl(ToControl(absl::AbortedError("why"))), absl::AbortedError("why"));
  EXPECT_TRUE(FromControl(ToControl(absl::OkStatus())).ok());
  control::Status unknown;
  unknown.set_code(999);
  EXPECT_EQ(FromControl(unknown).code(), absl::StatusCode::kUnknown);
  NodeAddress node;
  node.id = 3;
  node.incarnation = 2;
  node.rank = 2;
  node.endpoint = std::string("ipc://@e");
  node.host = std::string("h");
  node.pid = 99;
  const NodeAddress back = FromControl(ToControl(node));
  EXPECT_EQ(back.id, 3);
  EXPECT_EQ(back.incarnation, 2u);
  EXPECT_EQ(back.rank, 2);
  EXPECT_EQ(back.endpoint, "ipc://@e");
  EXPECT_EQ(back.host, "h");
  EXPECT_EQ(back.pid, 99);
}

}  // namespace
}  // namespace troupe::runtime::internal
