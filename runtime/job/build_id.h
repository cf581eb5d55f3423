/// Which build of the program this is: what driver and workers compare before they talk.
#pragma once

#include <string>

namespace troupe::runtime {

/// The linker's build id of the running executable in hex, or a hash of the file when it has none.
std::string BuildId();

}  // namespace troupe::runtime
