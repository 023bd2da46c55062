#include <numeric>
#include <optional>
#include <vector>

int main() {
    std::vector<int> values(9, 1);
    std::optional<int> sum = std::accumulate(values.begin(), values.end(), 0);
    return sum.value_or(0) == 9 ? 0 : 1;
}
