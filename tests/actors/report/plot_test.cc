#include "actors/report/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "actors/report/loss_curve.h"

namespace troupe::actors {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(PlotTest, TicksAreRoundAndEncloseTheRange) {
  EXPECT_THAT(PlotTicks(0, 1, 5), ElementsAre(0, 0.2, 0.4, 0.6000000000000001, 0.8, 1));
  EXPECT_THAT(PlotTicks(13, 87, 4), ElementsAre(0, 20, 40, 60, 80, 100));
  EXPECT_THAT(PlotTicks(0, 1000, 4), ElementsAre(0, 250, 500, 750, 1000));
  for (const double scale : {1e-6, 0.37, 1.0, 42.0, 1e9}) {
    const auto ticks = PlotTicks(-scale, scale * 1.7, 6);
    EXPECT_LE(ticks.front(), -scale);
    EXPECT_GE(ticks.back(), scale * 1.7);
    EXPECT_LE(ticks.size(), 9u);
  }
}

TEST(PlotTest, AnSvgHasTitleLabelsCurvesAndColoursForDarkPages) {
  Plot plot{"a < b & c", "step", "loss", {{"train", PlotSeries::Style::kLine, 0, {{0, 1}, {1, 0.5}}}}};
  const std::string svg = RenderSvg(plot);
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
  EXPECT_THAT(svg, Not(HasSubstr("a < b")));
  EXPECT_THAT(svg, HasSubstr(">step</text>"));
  EXPECT_THAT(svg, HasSubstr(">loss</text>"));
  EXPECT_THAT(svg, HasSubstr(">train</text>"));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_EQ(Count(svg, "<polyline"), 1u);
  EXPECT_EQ(RenderSvg(plot), svg) << "the same input gives the same bytes";
}

TEST(PlotTest, ValuesThatAreNotFiniteBreakTheLineAndNeverReachThePage) {
  Plot plot{"t", "x", "y", {{"s", PlotSeries::Style::kLine, 0, {{0, 1}, {1, 2}, {2, kNan}, {3, 2}, {4, 1}}}}};
  const std::string svg = RenderSvg(plot);
  EXPECT_EQ(Count(svg, "<polyline"), 2u);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(PlotTest, NoPointsOnePointAndEqualPointsAreDrawn) {
  for (const std::vector<PlotPoint>& points :
       {std::vector<PlotPoint>{}, std::vector<PlotPoint>{{3, 2}}, std::vector<PlotPoint>{{1, 0}, {2, 0}}}) {
    const std::string svg = RenderSvg({"t", "x", "y", {{"s", PlotSeries::Style::kLine, 0, points}}});
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, HasSubstr("</svg>"));
    EXPECT_EQ(Count(svg, "<circle"), points.size() == 1 ? 1u : 0u);
  }
}

TEST(PlotTest, StepsHaveNoTicksBetweenThem) {
  const std::string svg = RenderSvg({"t", "step", "y", {{"s", PlotSeries::Style::kLine, 0, {{1, 1}, {2, 2}, {3, 1}}}}});
  EXPECT_THAT(svg, HasSubstr("text-anchor=\"middle\">2</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("text-anchor=\"middle\">1.5</text>")));
}

TEST(PlotTest, LongSeriesAreThinnedButKeepTheirPeaks) {
  std::vector<PlotPoint> points;
  for (int i = 0; i < 200000; ++i) points.push_back({static_cast<double>(i), i == 77777 ? 9.0 : 1.0 + (i % 7) * 0.01});
  const std::string svg = RenderSvg({"t", "x", "y", {{"s", PlotSeries::Style::kLine, 0, points}}});
  EXPECT_LT(svg.size(), 100000u);
  // The axis ends at a tick of 10, the peak is at 9: 52 + 1/10 (or its like) of the frame, well above all others.
  const size_t begin = svg.find("points=\"") + 8;
  double least_y = 1e9;
  for (size_t at = begin; svg[at] != '"';) {
    const size_t comma = svg.find(',', at);
    least_y = std::min(least_y, std::strtod(svg.c_str() + comma + 1, nullptr));
    at = svg.find_first_of(" \"", comma);
    if (svg[at] == ' ') ++at;
  }
  EXPECT_LT(least_y, 120);
}

TEST(LossCurveTest, SmoothingIsAnExponentialMeanWithoutTheBiasOfTheStart) {
  const auto smoothed = Smooth({{1, 4}, {2, kNan}, {3, 2}, {4, 1}}, 0.5);
  ASSERT_EQ(smoothed.size(), 3u);
  EXPECT_DOUBLE_EQ(smoothed[0].y, 4);
  EXPECT_DOUBLE_EQ(smoothed[1].y, (0.5 * 4 + 2) / 1.5);
  EXPECT_DOUBLE_EQ(smoothed[2].y, (0.25 * 4 + 0.5 * 2 + 1) / 1.75);
  EXPECT_EQ(smoothed[1].x, 3);
}

TEST(LossCurveTest, IsWrittenIntoTheRunsFolder) {
  std::string root = (std::filesystem::temp_directory_path() / "loss_curve_XXXXXX").string();
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  RunDirectoryOptions options;
  options.output_dir = root;
  options.add_version = false;
  const auto directory = RunDirectory::Create(options);
  ASSERT_TRUE(directory.ok()) << directory.status();
  LossCurve curve("tiny");
  for (int step = 1; step <= 10; ++step) curve.AddTrain(step, 10.0 / step);
  curve.AddEval(5, 3);
  curve.AddEval(10, 2);
  ASSERT_TRUE(curve.Write(*directory).ok());
  EXPECT_TRUE(std::filesystem::exists(directory->path("loss_curve.svg")));
  const std::string svg = RenderSvg(curve.ToPlot());
  EXPECT_EQ(Count(svg, "<polyline"), 3u);
  EXPECT_EQ(Count(svg, "<circle"), 3u) << "two evaluations and one in the legend";
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace troupe::actors
