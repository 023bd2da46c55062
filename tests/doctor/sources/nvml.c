/* An NVML that starts with the code $FAKE_NVML and knows no GPU. */
#include <stdlib.h>
#include <string.h>

static int code(void) {
    const char *text = getenv("FAKE_NVML");
    return text ? atoi(text) : 0;
}

int nvmlInit_v2(void) { return code(); }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return code(); }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 0; return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned room) { strncpy(text, "550.90.07", room); return 0; }
const char *nvmlErrorString(int number) {
    return number == 18 ? "RM has detected an NVML/RM version mismatch." : number == 9 ? "Driver Not Loaded" : "Unknown Error";
}
