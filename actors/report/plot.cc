#include "actors/report/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace troupe::actors {

namespace {

constexpr double kLeft = 76;
constexpr double kRight = 24;
constexpr double kTop = 52;
constexpr double kBottom = 58;
constexpr int kColours = 4;

/// The page has its own background, so the text is readable wherever it is shown; dark when the reader's page is dark.
constexpr const char* kStyle = R"(<style>
  text{fill:#24292f;font-family:system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;font-size:13px}
  .title{font-size:16px;font-weight:600}
  .page{fill:#ffffff} .frame{stroke:#57606a;fill:none} .grid{stroke:#d8dee4}
  .line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
  .faint{fill:none;stroke-width:1;stroke-opacity:.45;stroke-linejoin:round}
  .s0{stroke:#0969da} .s1{stroke:#bc4c00} .s2{stroke:#1a7f37} .s3{stroke:#8250df}
  .p0{fill:#0969da} .p1{fill:#bc4c00} .p2{fill:#1a7f37} .p3{fill:#8250df}
  @media (prefers-color-scheme: dark){
  .page{fill:#0d1117} .frame{stroke:#8b949e} .grid{stroke:#272e37} text{fill:#e6edf3}
  .s0{stroke:#58a6ff} .s1{stroke:#f0883e} .s2{stroke:#3fb950} .s3{stroke:#bc8cff}
  .p0{fill:#58a6ff} .p1{fill:#f0883e} .p2{fill:#3fb950} .p3{fill:#bc8cff}
  }
</style>
)";

std::string Escape(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

bool IsFinite(const PlotPoint& point) { return std::isfinite(point.x) && std::isfinite(point.y); }

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  /// Something with a width, even of no values or one.
  void Open(bool whole) {
    if (!(low <= high)) *this = {0, 1};
    if (low == high) {
      const double margin = low == 0 || whole ? 1 : std::abs(low) * 0.1;
      low -= margin;
      high += margin;
    }
  }
};

/// Where values lie on the page.
struct Axes {
  Range x;
  Range y;
  double left, right, top, bottom;

  double X(double value) const { return left + (value - x.low) / (x.high - x.low) * (right - left); }
  double Y(double value) const { return bottom - (value - y.low) / (y.high - y.low) * (bottom - top); }
};

std::string TickText(double value, double step) {
  if (std::abs(value) < step * 1e-6) value = 0;
  const double largest = std::max(std::abs(value), step);
  if (largest >= 1e6 || step < 1e-5) return absl::StrFormat("%.3g", value);
  const int digits = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  // A step of 2.5 needs one digit more than its size says.
  const double scaled = step * std::pow(10.0, digits);
  const bool more = std::abs(scaled - std::round(scaled)) > 1e-6;
  return absl::StrFormat("%.*f", digits + (more ? 1 : 0), value);
}

/// Runs of finite points, thinned so that no column of the page holds more than four.
std::vector<std::vector<PlotPoint>> Runs(const std::vector<PlotPoint>& points, const Axes& axes) {
  std::vector<std::vector<PlotPoint>> runs;
  bool open = false;
  for (const PlotPoint& point : points) {
    if (!IsFinite(point)) {
      open = false;
      continue;
    }
    if (!open) runs.emplace_back();
    open = true;
    runs.back().push_back(point);
  }
  const size_t columns = static_cast<size_t>(axes.right - axes.left);
  for (std::vector<PlotPoint>& run : runs) {
    if (run.size() <= 4 * columns) continue;
    std::vector<PlotPoint> thin;
    for (size_t begin = 0; begin < run.size();) {
      const double column = std::floor(axes.X(run[begin].x));
      size_t end = begin;
      size_t least = begin;
      size_t most = begin;
      for (; end < run.size() && std::floor(axes.X(run[end].x)) == column; ++end) {
        if (run[end].y < run[least].y) least = end;
        if (run[end].y > run[most].y) most = end;
      }
      std::vector<size_t> kept = {begin, least, most, end - 1};
      std::sort(kept.begin(), kept.end());
      kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
      for (const size_t i : kept) thin.push_back(run[i]);
      begin = end;
    }
    run = std::move(thin);
  }
  return runs;
}

void DrawSeries(const PlotSeries& series, const Axes& axes, std::string* svg) {
  const int colour = ((series.colour % kColours) + kColours) % kColours;
  const bool faint = series.style == PlotSeries::Style::kFaintLine;
  for (const std::vector<PlotPoint>& run : Runs(series.points, axes)) {
    if (run.size() > 1) {
      absl::StrAppend(svg, "<polyline class=\"", faint ? "faint" : "line", " s", colour, "\" points=\"");
      for (const PlotPoint& point : run) absl::StrAppendFormat(svg, "%.1f,%.1f ", axes.X(point.x), axes.Y(point.y));
      svg->back() = '"';
      absl::StrAppend(svg, "/>\n");
    }
    if (run.size() > 1 && series.style != PlotSeries::Style::kPoints) continue;
    const double radius = series.style == PlotSeries::Style::kPoints ? 4 : 2.5;
    for (const PlotPoint& point : run) {
      absl::StrAppendFormat(svg, "<circle class=\"p%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>\n", colour,
                            axes.X(point.x), axes.Y(point.y), radius);
    }
  }
}

/// Names in the upper right corner of the frame's head, beside the title.
void DrawLegend(const Plot& plot, std::string* svg) {
  double x = plot.width - kRight;
  for (auto series = plot.series.rbegin(); series != plot.series.rend(); ++series) {
    const int colour = ((series->colour % kColours) + kColours) % kColours;
    absl::StrAppendFormat(svg, "<text x=\"%.1f\" y=\"34\" text-anchor=\"end\">%s</text>\n", x, Escape(series->name));
    x -= 7.2 * static_cast<double>(series->name.size()) + 8;
    const bool faint = series->style == PlotSeries::Style::kFaintLine;
    absl::StrAppendFormat(svg, "<line class=\"%s s%d\" x1=\"%.1f\" x2=\"%.1f\" y1=\"30\" y2=\"30\"/>\n",
                          faint ? "faint" : "line", colour, x - 22, x);
    if (series->style == PlotSeries::Style::kPoints) {
      absl::StrAppendFormat(svg, "<circle class=\"p%d\" cx=\"%.1f\" cy=\"30\" r=\"4\"/>\n", colour, x - 11);
    }
    x -= 40;
  }
}

}  // namespace

std::vector<double> PlotTicks(double low, double high, int count) {
  const double rough = (high - low) / std::max(1, count);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  const double first = std::floor(low / step + 1e-9);
  const double last = std::ceil(high / step - 1e-9);
  for (double i = first; i <= last; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string RenderSvg(const Plot& plot) {
  bool whole_x = true;  // steps: no tick lies between two
  Axes axes{{}, {}, kLeft, plot.width - kRight, kTop, plot.height - kBottom};
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.points) {
      if (!IsFinite(point)) continue;
      axes.x.Add(point.x);
      axes.y.Add(point.y);
      whole_x = whole_x && point.x == std::floor(point.x);
    }
  }
  axes.x.Open(whole_x);
  axes.y.Open(/*whole=*/false);
  const std::vector<double> y_ticks = PlotTicks(axes.y.low, axes.y.high, 6);
  axes.y = {y_ticks.front(), y_ticks.back()};
  const int most_ticks = whole_x ? static_cast<int>(std::min(8.0, axes.x.high - axes.x.low)) : 8;
  const std::vector<double> x_ticks = PlotTicks(axes.x.low, axes.x.high, most_ticks);

  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n",
      plot.width, plot.height, plot.width, plot.height);
  absl::StrAppend(&svg, "<title>", Escape(plot.title), "</title>\n", kStyle);
  absl::StrAppendFormat(&svg, "<rect class=\"page\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n", plot.width, plot.height);
  absl::StrAppendFormat(&svg, "<text class=\"title\" x=\"%.1f\" y=\"34\">%s</text>\n", kLeft, Escape(plot.title));
  const double y_step = y_ticks.size() > 1 ? y_ticks[1] - y_ticks[0] : 1;
  for (const double tick : y_ticks) {
    const double y = axes.Y(tick);
    absl::StrAppendFormat(&svg, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", axes.left,
                          axes.right, y, y);
    absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", axes.left - 9, y + 4.5,
                          TickText(tick, y_step));
  }
  const double x_step = x_ticks.size() > 1 ? x_ticks[1] - x_ticks[0] : 1;
  for (const double tick : x_ticks) {
    if (tick < axes.x.low - x_step * 1e-6 || tick > axes.x.high + x_step * 1e-6) continue;
    const double x = axes.X(tick);
    absl::StrAppendFormat(&svg, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", x, x,
                          axes.top, axes.bottom);
    absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", x, axes.bottom + 20,
                          TickText(tick, x_step));
  }
  absl::StrAppendFormat(&svg, "<rect class=\"frame\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
                        axes.left, axes.top, axes.right - axes.left, axes.bottom - axes.top);
  absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                        (axes.left + axes.right) / 2, plot.height - 16, Escape(plot.x_label));
  const double middle = (axes.top + axes.bottom) / 2;
  absl::StrAppendFormat(
      &svg, "<text x=\"20\" y=\"%.1f\" text-anchor=\"middle\" transform=\"rotate(-90 20 %.1f)\">%s</text>\n", middle,
      middle, Escape(plot.y_label));
  for (const PlotSeries& series : plot.series) DrawSeries(series, axes, &svg);
  DrawLegend(plot, &svg);
  return absl::StrCat(svg, "</svg>\n");
}

}  // namespace troupe::actors
