#include "engine/device/cpu/cpu_device.h"

#include <dnnl.h>

#include "engine/device/cpu/cpu_device_impl.h"

namespace troupe::engine {

std::unique_ptr<Device> MakeCpuDevice(int num_threads) { return std::make_unique<cpu::CpuDevice>(num_threads); }

const char* CpuInstructionSet() {
  switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_avx512_core_amx: return "avx512+amx";
    case dnnl_cpu_isa_avx512_core_bf16: return "avx512+bf16";
    case dnnl_cpu_isa_avx512_core_vnni:
    case dnnl_cpu_isa_avx512_core: return "avx512";
    case dnnl_cpu_isa_avx2_vnni:
    case dnnl_cpu_isa_avx2: return "avx2";
    case dnnl_cpu_isa_avx: return "avx";
    default: return "sse4.1";
  }
}

}  // namespace troupe::engine
