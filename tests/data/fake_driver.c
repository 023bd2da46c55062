/* A driver that answers what a test asks for. Built twice: as libcuda.so.1 and as libnvidia-ml.so.1.
 * MADE_UP_CUINIT, MADE_UP_VERSION, MADE_UP_DEVICES, MADE_UP_CAPABILITY (89), MADE_UP_MEMORY_MIB, MADE_UP_NVML. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long number(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text && *text ? atol(text) : otherwise;
}

/* --- CUDA driver API ------------------------------------------------------------------------------------------- */
enum { MAJOR = 75, MINOR = 76, SM_COUNT = 16, PCI_BUS = 33 };

int cuDriverGetVersion(int *version) { *version = (int)number("MADE_UP_VERSION", 12040); return 0; }
int cuInit(unsigned flags) { (void)flags; return (int)number("MADE_UP_CUINIT", 0); }
int cuDeviceGetCount(int *count) { *count = (int)number("MADE_UP_DEVICES", 1); return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetName(char *name, int room, int device) { snprintf(name, room, "Made Up %d", device); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  (void)device;
  *bytes = (size_t)number("MADE_UP_MEMORY_MIB", 24564) << 20;
  return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  long sm = number("MADE_UP_CAPABILITY", 89);
  switch (attribute) {
    case MAJOR: *value = (int)(sm / 10); return 0;
    case MINOR: *value = (int)(sm % 10); return 0;
    case SM_COUNT: *value = 114; return 0;
    case PCI_BUS: *value = 1 + device; return 0;
    default: *value = 0; return 0;
  }
}

/* --- NVML: everything but the start is "not supported" (3) ------------------------------------------------------ */
int nvmlInit_v2(void) { return (int)number("MADE_UP_NVML", 0); }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned room) { snprintf(text, room, "550.90.07"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = (unsigned)number("MADE_UP_CARDS", 1); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = (void *)(size_t)(index + 1); return 0; }
int nvmlDeviceGetName(void *card, char *text, unsigned room) {
  snprintf(text, room, "Made Up %d", (int)(size_t)card - 1);
  return 0;
}
int nvmlDeviceGetMigMode(void *card, unsigned *now, unsigned *next) {
  (void)card;
  *now = *next = (unsigned)number("MADE_UP_MIG", 0);
  return 0;
}
const char *nvmlErrorString(int code) { return code == 18 ? "Driver/library version mismatch" : "Made up error"; }
