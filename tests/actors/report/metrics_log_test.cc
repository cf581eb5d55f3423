#include "actors/report/metrics_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

namespace troupe::actors {
namespace {

using ::testing::HasSubstr;

class MetricsLogTest : public ::testing::Test {
 protected:
  MetricsLogTest() {
    std::string name = (std::filesystem::temp_directory_path() / "metrics_log_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~MetricsLogTest() override { std::filesystem::remove_all(root_); }

  std::string path() const { return (root_ / "logging.jsonl").string(); }
  std::string Read() const {
    std::ostringstream text;
    text << std::ifstream(path()).rdbuf();
    return text.str();
  }

  std::filesystem::path root_;
};

TEST_F(MetricsLogTest, AStepHasTheFieldsOfTheIssueInTheirOrder) {
  auto log = MetricsLog::Open(path());
  ASSERT_TRUE(log.ok()) << log.status();
  StepMetrics m;
  m.step = 3;
  m.epoch = 0.25;
  m.loss = 0.1;
  m.grad_norm = 2;
  m.learning_rate = 1e-4;
  m.token_acc = 1.0 / 3;
  m.num_tokens = 12345;
  m.tokens_per_second = 5000.5;
  m.memory_gib = 0.5;
  m.elapsed_s = 7;
  m.state_hash = "00ff";
  ASSERT_TRUE(log->Append(m).ok());
  // Read while the log is open: the line is there already.
  EXPECT_EQ(Read(),
            "{\"step\":3,\"epoch\":0.25,\"loss\":0.1,\"grad_norm\":2.0,\"learning_rate\":0.0001,"
            "\"token_acc\":0.3333333333333333,\"num_tokens\":12345,\"tokens_per_second\":5000.5,\"memory_gib\":0.5,"
            "\"elapsed_s\":7.0,\"state_hash\":\"00ff\"}\n");
}

TEST_F(MetricsLogTest, NumbersReadBackAsTheyWere) {
  for (const double value : {0.1, 1.0 / 3, 1e-300, 123456789.123456789, 5e-324, -0.0}) {
    const auto parsed = nlohmann::json::parse(FormatMetrics({{"x", value}}));
    EXPECT_EQ(parsed["x"].get<double>(), value);
  }
}

TEST_F(MetricsLogTest, WhatIsNotANumberIsNull) {
  EXPECT_EQ(FormatMetrics({{"loss", std::numeric_limits<double>::quiet_NaN()},
                           {"norm", std::numeric_limits<double>::infinity()}}),
            "{\"loss\":null,\"norm\":null}");
}

TEST_F(MetricsLogTest, EvaluationsAndOtherFieldsAreLinesOfTheirOwn) {
  auto log = MetricsLog::Open(path());
  ASSERT_TRUE(log.ok()) << log.status();
  EvalMetrics m;
  m.step = 10;
  m.eval_loss = 1.5;
  ASSERT_TRUE(log->Append(m).ok());
  ASSERT_TRUE(log->Append(MetricsLog::Fields{{"kl", 0.5}, {"note", std::string("a\nb")}}).ok());
  EXPECT_THAT(Read(), HasSubstr("{\"step\":10,\"epoch\":0.0,\"eval_loss\":1.5,\"eval_token_acc\":0.0"));
  EXPECT_THAT(Read(), HasSubstr("\n{\"kl\":0.5,\"note\":\"a\\nb\"}\n"));
}

TEST_F(MetricsLogTest, AppendingKeepsWhatWasThere) {
  for (const bool append : {false, true, false}) {
    auto log = MetricsLog::Open(path(), append);
    ASSERT_TRUE(log.ok()) << log.status();
    MetricsLog moved = *std::move(log);
    ASSERT_TRUE(moved.Append(MetricsLog::Fields{{"x", int64_t{1}}}).ok());
    EXPECT_EQ(Read(), append ? "{\"x\":1}\n{\"x\":1}\n" : "{\"x\":1}\n");
  }
}

TEST_F(MetricsLogTest, ErrorsNameThePath) {
  EXPECT_THAT(std::string(MetricsLog::Open("/nowhere/logging.jsonl").status().message()),
              HasSubstr("/nowhere/logging.jsonl"));
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  auto log = MetricsLog::Open("/dev/full", /*append=*/true);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_THAT(std::string(log->Append(EvalMetrics()).message()), HasSubstr("bytes to /dev/full"));
}

}  // namespace
}  // namespace troupe::actors
