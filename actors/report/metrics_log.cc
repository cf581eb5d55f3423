#include "actors/report/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace troupe::actors {

std::string FormatMetrics(const MetricsLog::Fields& fields) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, value] : fields) {
    std::visit([&, &key = name](const auto& v) { json[key] = v; }, value);
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

absl::StatusOr<MetricsLog> MetricsLog::Open(const std::string& path, bool append) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC), 0666);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  return MetricsLog(path, file);
}

MetricsLog::MetricsLog(MetricsLog&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}

MetricsLog& MetricsLog::operator=(MetricsLog&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  return *this;
}

MetricsLog::~MetricsLog() {
  if (file_ >= 0) close(file_);
}

absl::Status MetricsLog::Append(const StepMetrics& m) {
  return Append(Fields{{"step", m.step},
                       {"epoch", m.epoch},
                       {"loss", m.loss},
                       {"grad_norm", m.grad_norm},
                       {"learning_rate", m.learning_rate},
                       {"token_acc", m.token_acc},
                       {"num_tokens", m.num_tokens},
                       {"tokens_per_second", m.tokens_per_second},
                       {"memory_gib", m.memory_gib},
                       {"elapsed_s", m.elapsed_s},
                       {"state_hash", m.state_hash}});
}

absl::Status MetricsLog::Append(const EvalMetrics& m) {
  return Append(Fields{{"step", m.step},
                       {"epoch", m.epoch},
                       {"eval_loss", m.eval_loss},
                       {"eval_token_acc", m.eval_token_acc},
                       {"eval_num_tokens", m.eval_num_tokens},
                       {"eval_runtime", m.eval_runtime},
                       {"eval_samples_per_second", m.eval_samples_per_second}});
}

absl::Status MetricsLog::Append(const Fields& fields) {
  const std::string line = FormatMetrics(fields) + "\n";
  // One write a line, so that a reader or a crash never sees half of one (but for a disk that fills).
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = write(file_, line.data() + done, line.size() - done);
    if (written >= 0) {
      done += static_cast<size_t>(written);
    } else if (errno != EINTR) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", line.size() - done, " bytes to ", path_));
    }
  }
  return absl::OkStatus();
}

}  // namespace troupe::actors
