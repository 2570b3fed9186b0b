/** Properties that hold for all values, tried with many seeded ones. */
package io.nccl4j.property;
