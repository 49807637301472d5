package shop;

import com.azure.spring.data.cosmos.core.mapping.Container;
import com.azure.spring.data.cosmos.core.mapping.PartitionKey;
import java.time.Instant;
import org.springframework.data.annotation.Id;
import org.springframework.data.annotation.Version;

/** An item of the container `orders`, which is created at the start. The etag detects concurrent changes. */
@Container(containerName = "orders")
public class Order {
    @Id public String id;
    @PartitionKey public String customer;
    public double total;
    public String status;
    public String at;
    @Version public String _etag;

    static Order open(String id, String customer, double total) {
        var order = new Order();
        order.id = id;
        order.customer = customer;
        order.total = total;
        order.status = "open";
        order.at = Instant.now().toString();
        return order;
    }
}
