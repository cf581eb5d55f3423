/// logging.jsonl: one JSON object a line, each whole on disk before the next step begins.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace troupe::actors {

/// What one optimiser step reports, in the order of its line.
struct StepMetrics {
  int64_t step = 0;
  double epoch = 0;
  double loss = 0;
  double grad_norm = 0;      ///< before clipping
  double learning_rate = 0;  ///< the one that this step used
  double token_acc = 0;
  int64_t num_tokens = 0;
  double tokens_per_second = 0;
  double memory_gib = 0;  ///< of the rank that holds most
  double elapsed_s = 0;
  std::string state_hash;  ///< of the trainable weights after the step, the same on every mesh
};

struct EvalMetrics {
  int64_t step = 0;
  double epoch = 0;
  double eval_loss = 0;
  double eval_token_acc = 0;
  int64_t eval_num_tokens = 0;
  double eval_runtime = 0;
  double eval_samples_per_second = 0;
};

/// Numbers are written so that they read back as they were; nan and inf, which JSON does not have, as null.
///
/// Threads  one at a time.
class MetricsLog {
 public:
  using Value = std::variant<int64_t, double, std::string>;
  using Fields = std::vector<std::pair<std::string, Value>>;

  /// Continues a file that is there when `append`, else begins it anew.
  ///
  /// Errors  naming the path and what the system said.
  static absl::StatusOr<MetricsLog> Open(const std::string& path, bool append = false);

  MetricsLog(MetricsLog&& other) noexcept;
  MetricsLog& operator=(MetricsLog&& other) noexcept;
  ~MetricsLog();

  absl::Status Append(const StepMetrics& metrics);
  absl::Status Append(const EvalMetrics& metrics);
  /// A line of any fields, in their order.
  absl::Status Append(const Fields& fields);

 private:
  MetricsLog(std::string path, int file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  int file_ = -1;
};

/// One line, without its end.
std::string FormatMetrics(const MetricsLog::Fields& fields);

}  // namespace troupe::actors
