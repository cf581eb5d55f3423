/// What an adapter is, as in PEFT's adapter_config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace troupe::engine {

struct LoraConfig {
  int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;
  bool use_rslora = false;
  std::vector<std::string> target_modules;  ///< of q_proj k_proj v_proj o_proj gate_proj up_proj down_proj
  std::string base_model_name_or_path;

  /// alpha / rank, or alpha / sqrt(rank) with rslora.
  ///
  /// Source  Kalajdzievski 2023, arXiv:2312.03732
  double scaling() const;
};

/// Names of linear layers, or `all-linear` for all of them, in the order of the model.
///
/// Errors  INVALID_ARGUMENT naming an unknown one and those there are
absl::StatusOr<std::vector<std::string>> ResolveTargetModules(const std::vector<std::string>& names);

/// Reads DIR/adapter_config.json.
///
/// Errors  NOT_FOUND; INVALID_ARGUMENT; UNIMPLEMENTED naming a feature in use that we do not have (DoRA, rank_pattern, ...)
absl::StatusOr<LoraConfig> ReadLoraConfig(const std::string& adapter_dir);

/// The text of an adapter_config.json that PEFT loads.
std::string LoraConfigToJson(const LoraConfig& config);

}  // namespace troupe::engine
