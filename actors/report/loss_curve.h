/// loss_curve.svg: loss of every step, smoothed, and of every evaluation.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "actors/report/plot.h"
#include "actors/report/run_directory.h"

namespace troupe::actors {

/// Exponential mean without the bias of the start.
///
///   s_i = sum_j w^(i-j) y_j / sum_j w^(i-j), j <= i
std::vector<PlotPoint> Smooth(const std::vector<PlotPoint>& points, double weight);

/// The loss by step; values that are not finite count for nothing.
class LossCurve {
 public:
  explicit LossCurve(std::string title) : title_(std::move(title)) {}

  void AddTrain(double step, double loss) { train_.push_back({step, loss}); }
  void AddEval(double step, double loss) { eval_.push_back({step, loss}); }

  Plot ToPlot() const;
  /// Writes loss_curve.svg.
  absl::Status Write(const RunDirectory& directory) const;

 private:
  std::string title_;
  std::vector<PlotPoint> train_;
  std::vector<PlotPoint> eval_;
};

}  // namespace troupe::actors
