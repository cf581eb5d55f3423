/// What somebody sees while a run goes on: one line that updates on a terminal, plain lines in a file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace troupe::actors {

/// Where progress is written, and with which clock.
struct ProgressOutput {
  std::function<void(absl::string_view)> write;
  std::function<absl::Time()> now;
  std::function<int()> width;  ///< columns of the terminal
  bool terminal = false;
  bool unicode = false;
  absl::Duration redraw_interval = absl::Milliseconds(50);  ///< on a terminal
};

/// Standard output as it is: a terminal or not, its width, UTF-8 or not by the locale.
ProgressOutput StdoutProgress();

struct ProgressStep {
  int64_t step = 0;
  int64_t total = 0;
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  double tokens_per_second = 0;
  std::vector<double> memory_gib;  ///< by rank
};

/// The line: bar, step/total, loss, grad norm, lr, tokens/s, memory per rank, elapsed, left. On a narrow terminal
/// fields are dropped, the least important first.
///
/// On a terminal the line is redrawn in place and stays the last: whatever else this process shows goes through Print.
/// A process that writes to the same terminal begins its lines with "\r\x1b[K", and the next step draws the line again
/// below.
/// Threads  one at a time.
class Progress {
 public:
  explicit Progress(ProgressOutput output);
  /// Ends the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Time left is counted from here: `step` steps were done before (0, or those of the run that is resumed).
  void Begin(int64_t step, int64_t total);
  void Update(const ProgressStep& step);
  /// Text of whole lines, above the progress line; a newline is added when there is none.
  void Print(absl::string_view text);
  /// Draws the last step, leaves it, and goes to a new line.
  void End();

  const ProgressOutput& output() const { return output_; }

 private:
  absl::Duration Left(const ProgressStep& step) const;
  std::string Plain(const ProgressStep& step) const;
  std::string Bar(const ProgressStep& step, int width) const;
  void Draw();

  ProgressOutput output_;
  absl::Time begin_;
  int64_t first_step_ = 0;
  ProgressStep last_;
  bool shown_ = false;    // a progress line stands on the terminal
  bool pending_ = false;  // last_ was not drawn yet
  absl::Time drawn_ = absl::InfinitePast();
};

}  // namespace troupe::actors
