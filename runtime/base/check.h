/// Aborts on errors of the program itself, printing what was compared; never for data from a wire or a file.
#pragma once

#include <sstream>
#include <string>

namespace troupe {

namespace internal {

/// Collects a message and aborts the process when it goes out of scope.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const std::string& what);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

template <typename A, typename B>
std::string DescribeComparison(const char* expression, const A& a, const B& b) {
  std::ostringstream out;
  out << expression << " (" << a << " vs " << b << ")";
  return out.str();
}

}  // namespace internal
}  // namespace troupe

#define TROUPE_CHECK(condition) \
  if (condition) {              \
  } else                        \
    ::troupe::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()

#define TROUPE_CHECK_OP_(a, op, b)                                                                                   \
  if ((a)op(b)) {                                                                                                    \
  } else                                                                                                             \
    ::troupe::internal::CheckFailure(__FILE__, __LINE__,                                                             \
                                     ::troupe::internal::DescribeComparison(#a " " #op " " #b, (a), (b)))            \
        .stream()

#define TROUPE_CHECK_EQ(a, b) TROUPE_CHECK_OP_(a, ==, b)
#define TROUPE_CHECK_NE(a, b) TROUPE_CHECK_OP_(a, !=, b)
#define TROUPE_CHECK_LT(a, b) TROUPE_CHECK_OP_(a, <, b)
#define TROUPE_CHECK_LE(a, b) TROUPE_CHECK_OP_(a, <=, b)
#define TROUPE_CHECK_GT(a, b) TROUPE_CHECK_OP_(a, >, b)
#define TROUPE_CHECK_GE(a, b) TROUPE_CHECK_OP_(a, >=, b)
