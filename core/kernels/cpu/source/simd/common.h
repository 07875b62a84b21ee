// What most sources include. It is compiled once for all of them: see core/kernels/cpu/compiler.py.
#pragma once
#include "vec.h"

#include <algorithm>
#include <cstring>
#include <omp.h>
#include <utility>
#include <vector>
