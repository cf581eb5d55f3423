/// The names of types as the compiler spells them: what the signature hash is taken over.
#pragma once

#include <string>
#include <string_view>

namespace troupe::runtime {

namespace type_name_internal {

template <typename T>
constexpr std::string_view Decorated() {
  return __PRETTY_FUNCTION__;
}

// What stands around the name is the same for every type, so it is measured once.
constexpr std::string_view kProbe = Decorated<int>();
constexpr size_t kPrefix = kProbe.rfind("int");

}  // namespace type_name_internal

/// `troupe::actors::Trainer`.
template <typename T>
std::string TypeName() {
  std::string_view text = type_name_internal::Decorated<T>();
  text.remove_prefix(type_name_internal::kPrefix);
  const size_t end = text.find("; std::string_view =");  // g++ explains its typedefs behind the name
  return std::string(text.substr(0, end == std::string_view::npos ? text.rfind(']') : end));
}

}  // namespace troupe::runtime
