#include "actors/report/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "actors/report/human_units.h"

namespace troupe::actors {

namespace {

constexpr int kDefaultWidth = 100;
constexpr const char* kClearLine = "\r\x1b[K";

bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string lower = absl::AsciiStrToLower(value);
    return absl::StrContains(lower, "utf-8") || absl::StrContains(lower, "utf8");
  }
  return false;
}

int TerminalWidth() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kDefaultWidth;
}

void WriteStdout(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads any more; the run goes on
    text.remove_prefix(static_cast<size_t>(written));
  }
}

/// `mem 0.42 GiB`, or the range when ranks differ.
std::string Memory(const std::vector<double>& gib) {
  if (gib.empty()) return "";
  const auto [least, most] = std::minmax_element(gib.begin(), gib.end());
  const std::string low = absl::StrFormat("%.2f", *least);
  const std::string high = absl::StrFormat("%.2f", *most);
  return absl::StrCat("mem ", low == high ? high : absl::StrCat(low, "-", high), " GiB", gib.size() > 1 ? "/rank" : "");
}

std::string LearningRate(double rate) { return absl::StrFormat("%.2e", rate); }

}  // namespace

ProgressOutput StdoutProgress() {
  ProgressOutput output;
  output.write = WriteStdout;
  output.now = [] { return absl::Now(); };
  output.width = TerminalWidth;
  const char* term = std::getenv("TERM");
  output.terminal = isatty(STDOUT_FILENO) == 1 && (term == nullptr || std::string(term) != "dumb");
  output.unicode = LocaleIsUtf8();
  return output;
}

Progress::Progress(ProgressOutput output) : output_(std::move(output)), begin_(output_.now()) {}

Progress::~Progress() { End(); }

void Progress::Begin(int64_t step, int64_t total) {
  begin_ = output_.now();
  first_step_ = step;
  last_ = ProgressStep();
  last_.step = step;
  last_.total = total;
}

absl::Duration Progress::Left(const ProgressStep& step) const {
  const int64_t done = step.step - first_step_;
  if (done <= 0) return absl::InfiniteDuration();
  return (output_.now() - begin_) / static_cast<double>(done) *
         static_cast<double>(std::max<int64_t>(0, step.total - step.step));
}

std::string Progress::Plain(const ProgressStep& s) const {
  const std::string memory = Memory(s.memory_gib);
  return absl::StrCat("step ", s.step, "/", s.total,
                      absl::StrFormat("  loss %.4f  grad_norm %.4f", s.loss, s.grad_norm), "  lr ",
                      LearningRate(s.learning_rate), "  ", FormatCount(s.tokens_per_second), " tokens/s  ", memory,
                      memory.empty() ? "" : "  ", "elapsed ", FormatElapsed(output_.now() - begin_), "  left ",
                      FormatElapsed(Left(s)), "\n");
}

std::string Progress::Bar(const ProgressStep& s, int width) const {
  // In the order of the line; a smaller number is dropped first.
  struct Field {
    int importance;
    std::string text;
  };
  const std::string memory = Memory(s.memory_gib);
  std::vector<Field> fields = {{9, absl::StrCat(s.step, "/", s.total)},
                               {8, absl::StrFormat("loss %.4f", s.loss)},
                               {3, absl::StrFormat("grad_norm %.3f", s.grad_norm)},
                               {2, absl::StrCat("lr ", LearningRate(s.learning_rate))},
                               {5, absl::StrCat(FormatCount(s.tokens_per_second), " tok/s")},
                               {4, memory},
                               {6, FormatElapsed(output_.now() - begin_)},
                               {7, absl::StrCat(FormatElapsed(Left(s)), " left")}};
  fields.erase(std::remove_if(fields.begin(), fields.end(), [](const Field& f) { return f.text.empty(); }),
               fields.end());
  const auto join = [&] {
    return absl::StrJoin(fields, "  ", [](std::string* out, const Field& f) { absl::StrAppend(out, f.text); });
  };
  // The last column stays free: some terminals wrap when it is filled.
  const int room = std::max(0, width - 1);
  while (fields.size() > 1 && DisplayWidth(join()) > room) {
    fields.erase(std::min_element(fields.begin(), fields.end(),
                                  [](const Field& a, const Field& b) { return a.importance < b.importance; }));
  }
  std::string text = join();
  if (DisplayWidth(text) > room) text.resize(static_cast<size_t>(room));

  constexpr int kLeastBar = 8;
  constexpr int kMostBar = 30;
  const int bar_width = std::min(kMostBar, room - DisplayWidth(text) - 2);
  if (bar_width < kLeastBar) return text;
  const double share =
      s.total > 0 ? std::clamp(static_cast<double>(s.step) / static_cast<double>(s.total), 0.0, 1.0) : 0;
  const int filled = static_cast<int>(std::floor(share * bar_width));
  std::string bar;
  for (int i = 0; i < bar_width; ++i) {
    bar += i < filled ? (output_.unicode ? "█" : "#") : (output_.unicode ? "░" : ".");
  }
  return absl::StrCat(bar, "  ", text);
}

void Progress::Draw() {
  output_.write(absl::StrCat(kClearLine, Bar(last_, output_.width())));
  shown_ = true;
  pending_ = false;
  drawn_ = output_.now();
}

void Progress::Update(const ProgressStep& step) {
  last_ = step;
  if (!output_.terminal) {
    output_.write(Plain(step));
    return;
  }
  pending_ = true;
  if (output_.now() - drawn_ >= output_.redraw_interval || step.step >= step.total) Draw();
}

void Progress::Print(absl::string_view text) {
  const std::string lines = absl::StrCat(text, absl::EndsWith(text, "\n") ? "" : "\n");
  if (!shown_) {
    output_.write(lines);
    return;
  }
  output_.write(absl::StrCat(kClearLine, lines, Bar(last_, output_.width())));
}

void Progress::End() {
  if (!output_.terminal) return;
  if (pending_) Draw();
  if (shown_) output_.write("\n");
  shown_ = false;
}

}  // namespace troupe::actors
