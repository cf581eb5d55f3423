/// Tokenised samples from JSONL files.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/chat/chat_template.h"
#include "engine/data/row.h"
#include "engine/data/sample.h"
#include "engine/tokenizer/tokenizer.h"

namespace troupe::engine {

/// What happens to a sample of more than max_length tokens.
enum class TruncationStrategy {
  kDelete,  ///< it is left out
  kLeft,    ///< its first tokens go
  kRight,   ///< its last tokens go
  kRaise,   ///< it is an error
};
/// Errors  INVALID_ARGUMENT: `delete`, `left`, `right` and `raise` are known
absl::StatusOr<TruncationStrategy> ParseTruncationStrategy(const std::string& name);

struct DatasetOptions {
  int64_t max_length = 0;  ///< 0: any
  TruncationStrategy truncation_strategy = TruncationStrategy::kDelete;
  bool strict = false;     ///< a bad row is an error instead of skipped
};

/// A conversation as its template renders it, loss on the assistant's text and end of turn; plain text between BOS (where the
/// tokenizer adds one) and EOS, loss on all but the first.
///
/// Empty when truncation_strategy says delete, or no target is left.
absl::StatusOr<std::optional<Sample>> EncodeRow(const Row& row, const Tokenizer& tokenizer, const ChatTemplate& chat,
                                                const DatasetOptions& options);

/// A row that could not be read.
struct SkippedRow {
  std::string file;
  int64_t line = 0;
  std::string why;
};

class Dataset {
 public:
  Dataset() = default;

  /// `paths`: FILE, or FILE#N for its first N rows.
  ///
  /// Errors  NOT_FOUND; INVALID_ARGUMENT: a bad row (file:line: why) when strict, a row too long with `raise`, no sample at all
  static absl::StatusOr<Dataset> Load(const std::vector<std::string>& paths, const Tokenizer& tokenizer, const ChatTemplate& chat,
                                      const DatasetOptions& options);

  size_t size() const { return samples_.size(); }
  const Sample& Get(size_t i) const { return samples_[i]; }
  const std::vector<SkippedRow>& skipped() const { return skipped_; }
  /// Rows left out for their length, or because nothing in them is a target.
  int64_t num_deleted() const { return num_deleted_; }

  /// An order that depends on the seed and the size alone.
  void Shuffle(uint64_t seed);
  /// The rest, and round(ratio size) (at least one) samples chosen by the seed alone, both in the order of the file.
  absl::StatusOr<std::pair<Dataset, Dataset>> Split(double ratio, uint64_t seed) const;

 private:
  std::vector<Sample> samples_;
  std::vector<SkippedRow> skipped_;
  int64_t num_deleted_ = 0;
};

}  // namespace troupe::engine
