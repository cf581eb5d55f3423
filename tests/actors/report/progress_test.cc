#include "actors/report/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "actors/report/human_units.h"

namespace troupe::actors {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// What somebody in front of the terminal sees: it knows newline, return and clear-to-end.
class Screen {
 public:
  void Write(absl::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text.substr(i, 3) == "\x1b[K") {
        lines_.back().resize(column_);
        i += 2;
      } else if (text[i] == '\r') {
        column_ = 0;
      } else if (text[i] == '\n') {
        lines_.emplace_back();
        column_ = 0;
      } else {
        if (lines_.back().size() <= column_) lines_.back().resize(column_ + 1, ' ');
        lines_.back()[column_++] = text[i];
      }
    }
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_ = {""};
  size_t column_ = 0;
};

class ProgressTest : public ::testing::Test {
 protected:
  ProgressOutput Output(bool terminal, int width = 120) {
    ProgressOutput output;
    output.write = [this](absl::string_view text) {
      raw_ += std::string(text);
      screen_.Write(text);
    };
    output.now = [this] { return now_; };
    output.width = [width] { return width; };
    output.terminal = terminal;
    return output;
  }
  static ProgressStep Step(int64_t step) {
    ProgressStep s;
    s.step = step;
    s.total = 93;
    s.loss = 1.25;
    s.grad_norm = 0.5;
    s.learning_rate = 9.9e-5;
    s.tokens_per_second = 4321;
    s.memory_gib = {0.41, 0.44};
    return s;
  }

  absl::Time now_ = absl::UnixEpoch();
  std::string raw_;
  Screen screen_;
};

TEST_F(ProgressTest, AFileGetsAPlainLineAStep) {
  Progress progress(Output(/*terminal=*/false));
  progress.Begin(0, 93);
  now_ += absl::Seconds(30);
  progress.Update(Step(31));
  EXPECT_EQ(raw_,
            "step 31/93  loss 1.2500  grad_norm 0.5000  lr 9.90e-05  4.32k tokens/s  mem 0.41-0.44 GiB/rank  "
            "elapsed 30s  left 1m 00s\n");
  progress.Print("done");
  progress.End();
  EXPECT_THAT(raw_, HasSubstr("\ndone\n"));
  EXPECT_THAT(raw_, Not(HasSubstr("\x1b")));
}

TEST_F(ProgressTest, ATerminalShowsOneLineThatChanges) {
  Progress progress(Output(/*terminal=*/true));
  progress.Begin(0, 93);
  for (int step = 1; step <= 93; ++step) {
    now_ += absl::Seconds(1);
    progress.Update(Step(step));
    ASSERT_EQ(screen_.lines().size(), 1u);
    EXPECT_TRUE(absl::StrContains(screen_.lines()[0], std::to_string(step) + "/93  loss 1.2500")) << screen_.lines()[0];
  }
  EXPECT_TRUE(absl::StartsWith(screen_.lines()[0], "##########"));
  progress.End();
  EXPECT_EQ(screen_.lines().size(), 2u);
  EXPECT_EQ(screen_.lines()[1], "");
}

TEST_F(ProgressTest, LogLinesStandAboveTheProgressLineUngarbled) {
  Progress progress(Output(/*terminal=*/true));
  progress.Begin(0, 93);
  progress.Print("before the first step");
  now_ += absl::Seconds(1);
  progress.Update(Step(10));
  progress.Print("short");
  progress.Print("two\nlines\n");
  now_ += absl::Seconds(1);
  progress.Update(Step(11));
  progress.End();
  ASSERT_EQ(screen_.lines().size(), 6u);
  EXPECT_EQ(screen_.lines()[0], "before the first step");
  EXPECT_EQ(screen_.lines()[1], "short");
  EXPECT_EQ(screen_.lines()[2], "two");
  EXPECT_EQ(screen_.lines()[3], "lines");
  EXPECT_THAT(screen_.lines()[4], HasSubstr("11/93"));
}

TEST_F(ProgressTest, AProcessThatClearsTheLineFirstDoesNotGarble) {
  Progress progress(Output(/*terminal=*/true));
  progress.Begin(0, 93);
  progress.Update(Step(10));
  screen_.Write("\r\x1b[K[rank 2] a line\n");
  now_ += absl::Seconds(1);
  progress.Update(Step(11));
  EXPECT_EQ(screen_.lines()[0], "[rank 2] a line");
  EXPECT_THAT(screen_.lines()[1], HasSubstr("11/93"));
}

TEST_F(ProgressTest, TheLineNeverFillsTheWidthAndKeepsWhatMattersMost) {
  for (int width = 1; width <= 200; ++width) {
    screen_ = Screen();
    ProgressOutput output = Output(/*terminal=*/true, width);
    output.unicode = width % 2 == 0;
    Progress progress(output);
    progress.Begin(0, 93);
    progress.Update(Step(93));
    EXPECT_LT(DisplayWidth(screen_.lines()[0]), std::max(width, 1)) << screen_.lines()[0];
    if (width > 6) {
      EXPECT_THAT(screen_.lines()[0], HasSubstr("93/93"));
    }
    if (width > 25) {
      EXPECT_THAT(screen_.lines()[0], HasSubstr("loss 1.2500"));
    }
    if (width > 120) {
      EXPECT_THAT(screen_.lines()[0], HasSubstr("lr 9.90e-05"));
    }
  }
}

TEST_F(ProgressTest, FastStepsAreDrawnAtMostOnceAnIntervalButTheLastAlways) {
  Progress progress(Output(/*terminal=*/true));
  progress.Begin(0, 93);
  for (int step = 1; step <= 50; ++step) progress.Update(Step(step));
  EXPECT_THAT(screen_.lines()[0], HasSubstr(" 1/93"));
  progress.End();
  EXPECT_THAT(screen_.lines()[0], HasSubstr("50/93"));
}

TEST_F(ProgressTest, TimeLeftCountsOnlyTheStepsOfThisRun) {
  Progress progress(Output(/*terminal=*/false));
  progress.Begin(90, 93);
  progress.Update(Step(90));
  EXPECT_THAT(raw_, HasSubstr("left ?"));
  now_ += absl::Seconds(10);
  progress.Update(Step(91));
  EXPECT_THAT(raw_, HasSubstr("elapsed 10s  left 20s"));
}

}  // namespace
}  // namespace troupe::actors
