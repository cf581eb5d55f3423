#include "actors/report/loss_curve.h"

#include <cmath>

namespace troupe::actors {

namespace {
constexpr double kSmoothing = 0.9;
}  // namespace

std::vector<PlotPoint> Smooth(const std::vector<PlotPoint>& points, double weight) {
  std::vector<PlotPoint> smoothed;
  double sum = 0;
  double weights = 0;
  for (const PlotPoint& point : points) {
    if (!std::isfinite(point.y)) continue;
    sum = sum * weight + point.y;
    weights = weights * weight + 1;
    smoothed.push_back({point.x, sum / weights});
  }
  return smoothed;
}

Plot LossCurve::ToPlot() const {
  Plot plot;
  plot.title = title_;
  plot.x_label = "step";
  plot.y_label = "loss";
  plot.series.push_back({"train", PlotSeries::Style::kFaintLine, 0, train_});
  plot.series.push_back({"train, smoothed 0.9", PlotSeries::Style::kLine, 0, Smooth(train_, kSmoothing)});
  if (!eval_.empty()) plot.series.push_back({"eval", PlotSeries::Style::kPoints, 1, eval_});
  return plot;
}

absl::Status LossCurve::Write(const RunDirectory& directory) const {
  return directory.Write("loss_curve.svg", RenderSvg(ToPlot()));
}

}  // namespace troupe::actors
