/// Draws curves as SVG, readable on light and dark pages.
#pragma once

#include <string>
#include <vector>

namespace troupe::actors {

struct PlotPoint {
  double x = 0;
  double y = 0;
};

/// One curve. Points that are not finite are left out, and the line is broken there.
struct PlotSeries {
  enum class Style {
    kLine,
    kFaintLine,  ///< for raw values behind a smoothed line of the same colour
    kPoints,     ///< a line with a marker on each point
  };
  std::string name;
  Style style = Style::kLine;
  int colour = 0;  ///< index into a palette of four
  std::vector<PlotPoint> points;
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<PlotSeries> series;
  int width = 860;
  int height = 460;
};

/// Long series are thinned to what the width can show: least and greatest of every column stay.
std::string RenderSvg(const Plot& plot);

/// Round numbers that divide [low, high] into about `count` steps, from the last below `low` to the first above `high`.
std::vector<double> PlotTicks(double low, double high, int count);

}  // namespace troupe::actors
