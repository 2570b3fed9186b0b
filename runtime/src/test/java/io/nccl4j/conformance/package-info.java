/** What every backend must do, tested through the public interface only. */
package io.nccl4j.conformance;
