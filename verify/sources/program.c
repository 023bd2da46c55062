#include <math.h>
#include <stdio.h>

int main(void) {
    return printf("%g\n", 42.0) > 0 ? 0 : 1;
}
