/** What every package above the API's first one asks of its arguments. */
@NullMarked
package io.nccl4j.internal.check;

import org.jspecify.annotations.NullMarked;
